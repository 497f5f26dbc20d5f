# SPDX-License-Identifier: MIT
"""Effect of each optimisation of SC20's tutorial: fp32, +amp, +nhwc, +extra, +compile, measured in turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from .. import timing
from .._files import write_text
from .._runs.device import choose_device
from .._runs.failures import classify
from .._shown import interval, number, ratio
from ..errors import InvalidArgument, did_you_mean
from .experiment import Experiment, experiment_of
from .order import share_of
from .phases import PHASES, Phases
from .processes import Processes
from .settings import Settings
from .sources import Data
from .stepper import Stepper

__all__ = ["LADDER_FILE", "RUNGS", "Rung", "climb", "save_ladder", "table"]

LADDER_FILE = "ladder.csv"
# Each adds one key to those before it.
RUNGS = {
    "fp32": None,
    "+amp": "enable_amp",
    "+nhwc": "enable_nhwc",
    "+extra": "enable_extra_opts",
    "+compile": "enable_compile",
}
_BATCHES = 2  # made beforehand, used in turn: no loader is measured


@dataclass
class Rung:
    """One step of the ladder.

    Attributes:
        status: ok, or why it was not measured.
        rate: items per second, with `low` and `high` of a 95 % interval.
        ratio: speedup over the rung below, with its interval; NaN for the first.
        verdict: faster, slower, same or inconclusive.
        phases_ms: median of each phase of an iteration.
    """

    name: str
    status: str = "ok"
    seconds: list[float] = field(default_factory=list)  # of each round
    rate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    ratio: float = math.nan
    ratio_low: float = math.nan
    ratio_high: float = math.nan
    verdict: str = ""
    phases_ms: dict[str, float] = field(default_factory=dict)


class _Climber:
    """The model of one rung, with batches."""

    def __init__(self, experiment: Experiment, processes: Processes, steps: int) -> None:
        self._experiment, self._device, self._steps = experiment, processes.device, steps
        self._stepper = Stepper(experiment, processes)
        shares = [share_of(batch, 0, 0, 1) for batch in islice(experiment.order.batches(0), _BATCHES)]
        self._batches = [(share, experiment.data.train.batch(share.indices, 0)) for share in shares]
        self._off = Phases(0)

    def round_s(self, phases: Phases | None = None) -> float:
        """Seconds of the round's iterations, on the device too."""
        torch.backends.cudnn.benchmark = self._experiment.cudnn_benchmark
        phases = phases or self._off
        self._wait()
        begin_ns = timing.now_ns()
        for i in range(self._steps):
            share, batch = self._batches[i % len(self._batches)]
            with phases.iteration(i):
                with phases.data:
                    inputs, labels = self._stepper.place({0: batch})
                self._stepper.train(inputs, labels, share, phases)
        self._wait()
        return (timing.now_ns() - begin_ns) * 1e-9

    def phases_ms(self) -> dict[str, float]:
        """Median milliseconds of each phase, from a round of its own."""
        phases = Phases(self._steps, cuda=self._device.type == "cuda")
        with phases.profiled(1, on=True):
            self.round_s(phases)
        return {name: 1e3 * statistics.median(all_s) for name, all_s in phases.seconds().items()}

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def climb(
    settings: Settings,
    data: Data,
    *,
    rungs: Sequence[str] = tuple(RUNGS),
    device: str = "auto",
    rounds: int = 10,
    steps: int = 10,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Rung]:
    """Measure the rungs on one device, in turns, so that a drift of the machine meets all alike.

    Args:
        settings: a configuration; its own optimisations are set aside.
        data: data with batches in memory.
        rungs: names of `RUNGS`, each with those above it in that table that are named before it.
        rounds: measurements of each rung.
        steps: iterations of one.
        tell: function that is called with a line about each rung as it begins.

    Raises:
        InvalidArgument: an unknown rung, too few rounds, or data that are not in memory.
    """
    _check(rungs, data, rounds, steps)
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
            _prepare(
                rung, experiment_of(rung.name, settings.changed(keys), data, kind), processes, steps, climbers
            )
        ready = [rung for rung in made if rung.status == "ok"]
        for turn in range(rounds):
            tell(f"round {turn + 1} of {rounds}")
            for rung in ready if turn % 2 == 0 else reversed(ready):
                rung.seconds.append(climbers[rung.name].round_s())
        for rung in ready:
            rung.phases_ms = climbers[rung.name].phases_ms()
    finally:
        torch.backends.cudnn.benchmark = benchmark_before
    _judge(ready, settings.batch_size * steps)
    return made


def _check(rungs: Sequence[str], data: Data, rounds: int, steps: int) -> None:
    for name in rungs:
        if name not in RUNGS:
            raise InvalidArgument(
                f"unknown rung {name!r}; accepted: {', '.join(RUNGS)}{did_you_mean(name, RUNGS)}"
            )
    if not rungs or len(set(rungs)) != len(rungs):
        raise InvalidArgument(f"rungs {', '.join(rungs) or 'none'}: each once, and at least one")
    if rounds < 2 or steps < 1:
        raise InvalidArgument(f"rounds={rounds}, steps={steps}: at least 2 rounds of 1 step")
    if not hasattr(data.train, "batch"):
        raise InvalidArgument(
            f"{data.source} is not in memory; the ladder takes pictures of 32 x 32, or data=synthetic"
        )


def _keys(rungs: Sequence[str]) -> list[dict[str, bool]]:
    """Return the keys of each rung: its own and those of the rungs named before it."""
    own = [key for key in RUNGS.values() if key is not None]
    named: list[dict[str, bool]] = []
    on: set[str] = set()
    for name in rungs:
        on |= {key for key in [RUNGS[name]] if key is not None}
        named.append({key: key in on for key in own} | {"enable_profiling": False})
    return named


def _prepare(
    rung: Rung, experiment: Experiment, processes: Processes, steps: int, climbers: dict[str, _Climber]
) -> None:
    """Build a rung and run it once, in which compilers and cuDNN's search do their work."""
    try:
        climber = _Climber(experiment, processes, steps)
        climber.round_s()
    except Exception as error:  # a compiler raises what it will; the other rungs are measured
        if classify(error) == "crash" and not experiment.compile:
            raise
        rung.status = f"{classify(error)}: {(str(error).splitlines() or [type(error).__name__])[0][:200]}"
        return
    climbers[rung.name] = climber


def _judge(rungs: Sequence[Rung], items: int) -> None:
    below: Rung | None = None
    for rung in rungs:
        found = timing.batch_means(
            rung.seconds, batches=len(rung.seconds), independent=True
        )  # a mean of rates would overstate
        rung.rate = items / statistics.fmean(rung.seconds)
        rung.low = items / found.high if found.high is not None else math.nan
        rung.high = items / found.low if found.low is not None and found.low > 0 else math.inf
        if below is not None:
            step = timing.compare(below.seconds, rung.seconds)
            rung.ratio, rung.ratio_low, rung.ratio_high = step.ratio, step.low, step.high
            rung.verdict = str(step.verdict)
        below = rung


def table(rungs: Sequence[Rung]) -> str:
    """Format the rungs as a table for a reader."""
    lines = [
        f"{'rung':<10}{'img/s':>10}  {'95 %':<20}{'× below':>8}  {'95 %':<14}{'verdict':<14}ms: {', '.join(PHASES)}"
    ]
    for rung in rungs:
        if rung.status != "ok":
            lines.append(f"{rung.name:<10}{rung.status}")
            continue
        rate = f"{number(rung.rate):>10} {interval(rung.low, rung.high):<21}"
        step = f"{'':>8}  {'':<14}{'':<14}"
        if not math.isnan(rung.ratio):
            step = f"{ratio(rung.ratio):>8} {interval(rung.ratio_low, rung.ratio_high, ratio):<15}{rung.verdict:<14}"
        lines.append(
            f"{rung.name:<10}{rate}{step}{', '.join(f'{each:.2f}' for each in rung.phases_ms.values())}"
        )
    return "\n".join(lines)


def save_ladder(folder: Path, rungs: Sequence[Rung]) -> None:
    """Write `ladder.csv`: a row per rung."""
    names = ("rate", "low", "high", "ratio", "ratio_low", "ratio_high", "verdict")
    header = ["rung", "status", *names, *(f"{phase} ms" for phase in PHASES)]
    rows = [",".join(header)]
    for rung in rungs:
        cells: list[Any] = [rung.name, '"' + rung.status.replace('"', "'") + '"']
        cells += [getattr(rung, name) for name in names]
        cells += [rung.phases_ms.get(phase, math.nan) for phase in PHASES]
        rows.append(",".join(map(str, cells)))
    write_text(folder / LADDER_FILE, "\n".join([*rows, ""]))
