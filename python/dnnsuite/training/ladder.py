# SPDX-License-Identifier: MIT
"""Effect of each optimisation of SC20's tutorial: fp32, +amp, +nhwc, +extra, +compile, interleaved."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from .._runs.failures import classify
from .._runs.monitor import all_cores, free_cores
from .._runs.turn_session import take_turns_here
from .._runs.turns import FEWEST_PAIRS, Block, Goal, Known, Rounds
from .._runs.words import choose_device
from .._shown import interval, number, ratio
from .._torch_threads import torch_threads
from ..errors import InvalidArgument, check_choice
from .experiment import Experiment, experiment_of
from .history import save_rows
from .job import experiment_of_job, optimised_job
from .loading import share_of
from .processes import Processes
from .settings import Settings
from .sources import Data
from .stepper import PHASES, Phases, Stepper

Rungs = Callable[[str, Mapping[str, bool], str], Experiment]
Blocks = Mapping[str, Sequence[Any]]  # of each rung, for each round [iterations per second, what disturbed it], or None

LADDER_FILE = "ladder.csv"
# Each adds one key to those before it.
RUNGS = {
    "fp32": None,
    "+amp": "enable_amp",
    "+nhwc": "enable_nhwc",
    "+extra": "enable_extra_opts",
    "+compile": "enable_compile",
}
_COUNTS = 0.01  # least change of a rate
_BATCHES = 2  # made beforehand, used in turn: no loader is measured


@dataclass
class Rung:
    """One step of the ladder.

    Attributes:
        status: ok, or why it was not measured.
        rate: items per second, with `low` and `high` of a 95 % interval.
        ratio: speedup over the rung below, with its interval; NaN for the first.
        verdict: faster, slower, same or inconclusive.
        disturbed: cause of disturbed rounds, or reason why there is no interval; empty if nothing did.
        phases_ms: median of each phase of an iteration.
    """

    name: str
    status: str = "ok"
    rate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    ratio: float = math.nan
    ratio_low: float = math.nan
    ratio_high: float = math.nan
    verdict: str = ""
    disturbed: str = ""
    phases_ms: dict[str, float] = field(default_factory=dict)


class _Climber:
    """The model of one rung, with batches."""

    def __init__(self, experiment: Experiment, processes: Processes, steps: int) -> None:
        self._experiment, self._device, self._steps = experiment, processes.device, steps
        self._stepper = Stepper(experiment, processes)
        shares = [share_of(batch, 0, 0, 1) for batch in islice(experiment.order.batches(0), _BATCHES)]
        self._batches = [(share, experiment.data.train.batch(share.indices, 0)) for share in shares]
        self._off = Phases(0)

    def steps(self, count: int, phases: Phases | None = None) -> None:
        """Train so many iterations, on the device too."""
        torch.backends.cudnn.benchmark = self._experiment.cudnn_benchmark
        phases = phases or self._off
        self._wait()
        for i in range(count):
            share, batch = self._batches[i % len(self._batches)]
            with phases.iteration(i):
                with phases.data:
                    inputs, labels = self._stepper.place({0: batch})
                self._stepper.train(inputs, labels, share, phases)
        self._wait()

    def phases_ms(self) -> dict[str, float]:
        """Median milliseconds of each phase, from a separate round."""
        phases = Phases(self._steps, cuda=self._device.type == "cuda")
        with phases.profiled(1, on=True):
            self.steps(self._steps, phases)
        return {name: 1e3 * statistics.median(all_s) for name, all_s in phases.seconds().items()}

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def of_configuration(settings: Settings, data: Data) -> Rungs:
    """The rungs of a configuration, whose own optimisations are set aside, on data with batches in memory."""
    if not hasattr(data.train, "batch"):
        raise InvalidArgument(
            f"{data.source} is not in memory; the ladder takes pictures of 32 x 32, or data=synthetic"
        )
    return lambda name, keys, kind: experiment_of(
        name, settings.changed({**keys, "enable_profiling": False}), data, kind
    )


def of_job(name: str, preset: str, given: Mapping[str, Any], data: str, dataroot: str | None) -> Rungs:
    """The rungs of a job, with its keys; see :func:`~dnnsuite.training.experiment_of_job`."""
    return lambda rung, keys, kind: optimised_job(
        experiment_of_job(
            name, preset, {**given, "precision": "bf16" if keys["enable_amp"] else "fp32"}, kind, data, dataroot
        ),
        channels_last=keys["enable_nhwc"], extra=keys["enable_extra_opts"], compiled=keys["enable_compile"],
    )  # fmt: skip


def climb(
    made_by: Rungs,
    *,
    rungs: Sequence[str] = tuple(RUNGS),
    device: str = "auto",
    rounds: int = 10,
    steps: int = 10,
    tell: Callable[[str], None] = lambda text: None,
    before: Blocks | None = None,
    keep: Callable[[Blocks], None] = lambda blocks: None,
) -> list[Rung]:
    """Measure the rungs on one device, interleaved, so that a drift of the machine affects all of them.

    Args:
        made_by: makes the experiment of a rung, by its name, its keys and the device: `of_configuration` or `of_job`.
        rungs: names of `RUNGS`, each with those above it in that table that are named before it.
        rounds: measurements of each rung.
        steps: iterations of one.
        tell: function that is called with a line about each rung as it begins.
        before: rounds of a measurement that was interrupted, as `keep` got them; it continues there.
        keep: function that is called after each round with all rounds so far, as plain values.

    Raises:
        InvalidArgument: an unknown rung, or too few rounds.
    """
    _check(rungs, rounds, steps)
    kind = choose_device(device)
    processes = Processes(kind)
    if processes.world_size > 1:
        raise InvalidArgument("the ladder is of one process: start it without torchrun")
    benchmark_before = torch.backends.cudnn.benchmark
    made = [Rung(name) for name in rungs]
    climbers: dict[str, _Climber] = {}
    try:
        for rung, keys in zip(made, _keys(rungs), strict=True):
            tell(f"{rung.name}: warming up")
            experiment = made_by(rung.name, keys, kind)
            _prepare(rung, experiment, processes, steps, climbers)
        ready = [rung for rung in made if rung.status == "ok"]
        if ready:
            cores = free_cores() if kind == "cpu" else all_cores()
            with torch_threads(min(torch.get_num_threads(), len(cores.cpus))) if cores.shared else nullcontext():
                goal = Goal(rounds=rounds, floor=0.0)
                found = take_turns_here(
                    {rung.name: climbers[rung.name].steps for rung in ready}, goal, ready[0].name,
                    cores=cores, clock=time.process_time if cores.by_cpu_time else time.perf_counter,
                    by_cpu_time=cores.by_cpu_time, steps=steps, into=_continued(before or {}, ready, goal),
                    tell=lambda done: _note(done, rounds, tell, keep),
                )  # fmt: skip
                keep(_plain(found))
            _judge(ready, found, experiment.batch_size)
        for rung in ready:
            rung.phases_ms = climbers[rung.name].phases_ms()
    finally:
        torch.backends.cudnn.benchmark = benchmark_before
    return made


def _note(found: Rounds[str], rounds: int, tell: Callable[[str], None], keep: Callable[[Blocks], None]) -> None:
    keep(_plain(found))
    tell(f"round {max(map(len, found.blocks.values()))} of {rounds}")


def _plain(found: Rounds[str]) -> Blocks:
    """Return the blocks as plain values."""
    return {
        name: [block and [block.rate, block.disturbed] for block in blocks] for name, blocks in found.blocks.items()
    }


def _continued(before: Blocks, ready: Sequence[Rung], goal: Goal) -> Rounds[str]:
    """Return the rounds so far of the rungs that are measured."""
    own = {rung.name: [block and Block(*block) for block in before.get(rung.name, ())] for rung in ready}
    done = max(map(len, own.values()))
    return Rounds(ready[0].name, goal, {name: [*found, *[None] * (done - len(found))] for name, found in own.items()})


def _check(rungs: Sequence[str], rounds: int, steps: int) -> None:
    for name in rungs:
        check_choice("unknown rung", name, RUNGS)
    if not rungs or len(set(rungs)) != len(rungs):
        raise InvalidArgument(f"rungs {', '.join(rungs) or 'none'}: each once, and at least one")
    if rounds < FEWEST_PAIRS or steps < 1:
        raise InvalidArgument(
            f"{rounds} rounds (--repeats) of {steps} steps: at least {FEWEST_PAIRS} rounds of 1 step are needed"
        )


def _keys(rungs: Sequence[str]) -> list[dict[str, bool]]:
    """Return the keys of each rung: its own and those of the rungs named before it."""
    own = [key for key in RUNGS.values() if key is not None]
    named: list[dict[str, bool]] = []
    on: set[str] = set()
    for name in rungs:
        on |= {key for key in [RUNGS[name]] if key is not None}
        named.append({key: key in on for key in own})
    return named


def _prepare(
    rung: Rung, experiment: Experiment, processes: Processes, steps: int, climbers: dict[str, _Climber]
) -> None:
    """Build a rung and run it once, in which compilers and cuDNN's search do their work."""
    try:
        climber = _Climber(experiment, processes, steps)
        climber.steps(steps)
    except Exception as error:  # a compiler raises what it will; the other rungs are measured
        if classify(error) in ("crash", "refused") and not experiment.compile:
            raise
        rung.status = f"{classify(error)}: {(str(error).splitlines() or [type(error).__name__])[0][:200]}"
        return
    climbers[rung.name] = climber


def _judge(rungs: Sequence[Rung], found: Rounds[str], items: int) -> None:
    below: Rung | None = None
    for rung in rungs:
        rate = found.rate(rung.name)
        rung.rate, rung.low, rung.high = (items * value for value in (rate.value, rate.low, rate.high))
        if below is not None:
            step = found.between(rung.name, below.name)
            rung.ratio, rung.ratio_low, rung.ratio_high = step.value, step.low, step.high
            rung.verdict = _verdict(step)
            rung.disturbed = step.disturbed or step.why
        below = rung


def _verdict(step: Known) -> str:
    """Judge a speedup by its interval and the least change that counts."""
    if step.low > 1 and step.value > 1 + _COUNTS:
        return "faster"
    if step.high < 1 and step.value < 1 - _COUNTS:
        return "slower"
    return "same" if step.low > 1 - _COUNTS and step.high < 1 + _COUNTS else "inconclusive"


def table(rungs: Sequence[Rung], unit: str = "img/s") -> str:
    """Format the rungs as a table for a reader, with the unit of the rates."""
    lines = [f"{'rung':<10}{unit:>10}  {'95 %':<20}{'× below':>8}  {'95 %':<14}{'verdict':<14}ms: {', '.join(PHASES)}"]
    for rung in rungs:
        if rung.status != "ok":
            lines.append(f"{rung.name:<10}{rung.status}")
            continue
        rate = f"{number(rung.rate):>10} {interval(rung.low, rung.high):<21}"
        step = f"{'':>8}  {'':<14}{'':<14}"
        if not math.isnan(rung.ratio):
            step = f"{ratio(rung.ratio):>8} {interval(rung.ratio_low, rung.ratio_high, ratio):<15}{rung.verdict:<14}"
        elif rung.verdict:  # no undisturbed round
            step = f"{'':>8}  {'':<14}{rung.verdict:<14}"
        lines.append(f"{rung.name:<10}{rate}{step}{', '.join(f'{each:.2f}' for each in rung.phases_ms.values())}")
        if rung.disturbed:
            lines.append(f"{'':<10}{rung.disturbed}")
    return "\n".join(lines)


def save_ladder(folder: Path, rungs: Sequence[Rung]) -> None:
    """Write `ladder.csv`: a row per rung."""
    names = ("rate", "low", "high", "ratio", "ratio_low", "ratio_high", "verdict", "disturbed")
    save_rows(
        folder / LADDER_FILE,
        [
            {"rung": rung.name, "status": rung.status, **{name: getattr(rung, name) for name in names},
             **{f"{phase} ms": rung.phases_ms.get(phase, math.nan) for phase in PHASES}}
            for rung in rungs
        ],
    )  # fmt: skip
