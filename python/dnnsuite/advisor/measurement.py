# SPDX-License-Identifier: MIT
"""Measurement for advice: a few interleaved steps of one plain model and of small arrays, in this process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .._runs.neighbours import Cores, all_cores, free_cores
from .._runs.turn_task import settle
from .._runs.turns import Goal, Known
from .._runs.turns_here import Way, take_turns_here
from .._torch_threads import torch_threads
from .prediction import Limits, Measured

BS = (1, 2, 4)
_LEAST_WARM_UP = 16
_BUDGET_S = 20.0
_GEMM = 768
_FREE = 0.8  # of the free memory is used; the rest is for what else the process holds


class Stepper(Protocol):
    """One way to train: a plain model, or an array."""

    @property
    def settled(self) -> bool:
        """True once steps run as all further ones will."""

    def step(self) -> None:
        """Train one step, and wait for it."""

    def close(self) -> None:
        """Free threads."""


class Subject(Protocol):
    """The models that advice is asked for."""

    device: str

    def stepper(self, B: int, threads: int) -> Stepper:
        """Return an array of B models, or with 0 one plain model."""

    def plain_step(self) -> tuple[Callable[[], Any], Any]:
        """Return (function that makes a forward and backward of one plain model, the model)."""


@dataclass(frozen=True)
class Measurement:
    """Seconds of a step: of one plain model with all threads, with one thread, of arrays by B; and the limits.

    Attributes:
        cores: CPUs that it was measured on.
        unknown: reason that the steps are not known; empty where they are.
    """

    plain: Measured
    alone: Measured | None
    arrays: Mapping[int, Measured]
    limits: Limits
    threads: int
    cores: Cores
    unknown: str = ""


def measure(subject: Subject, threads: int, Bs: tuple[int, ...] = BS, budget_s: float = _BUDGET_S) -> Measurement:
    """Measure a plain model and arrays of `Bs` models with `threads` CPU threads; they take turns.

    Fewer threads are used where neighbours do not leave so many cores free.
    """
    on_cpu = not subject.device.startswith("cuda")
    cores = free_cores(threads) if on_cpu else all_cores()
    if cores.shared:
        threads = min(threads, len(cores.cpus))
    by_cpu_time = on_cpu and threads == 1  # what one thread works is not lengthened by others that wait for its core
    with contextlib.ExitStack() as open_ways, torch_threads(threads):
        steppers: dict[Any, Stepper] = {}
        for B in (0, *Bs):
            steppers[B] = subject.stepper(B, threads)
            open_ways.callback(steppers[B].close)
        for stepper in steppers.values():
            settle(stepper, _LEAST_WARM_UP)
        ways: dict[Any, Way] = {B: _repeated(stepper.step) for B, stepper in steppers.items()}
        if on_cpu and threads > 1:
            ways["alone"] = _repeated(lambda: _with_one_thread(steppers[0].step))
        found = take_turns_here(
            ways, Goal(budget_s=budget_s), 0, cores=cores, clock=_clock(threads if on_cpu else 0),
            by_cpu_time=by_cpu_time,
        ).rounds  # fmt: skip
    plain = _seconds(found.rate(0))
    ratios = {name: found.ratio(name) for name in ways if name != 0}
    unknown = next((ratio.reason() for ratio in ratios.values() if found.goal.verdict(ratio) == "inconclusive"), "")
    steps = {name: _by_ratio(plain, ratio) for name, ratio in ratios.items()}
    return Measurement(
        plain,
        steps.get("alone"),
        {B: steps[B] for B in Bs},
        _limits(subject, threads),
        threads if on_cpu else 1,
        cores,
        unknown,
    )


def _repeated(step: Callable[[], None]) -> Way:
    def run(steps: int) -> None:
        for _ in range(steps):
            step()

    return run


def _clock(threads: int) -> Callable[[], float]:
    """Choose the clock for this number of CPU threads; 0 for a GPU."""
    return time.process_time if threads == 1 else time.perf_counter


def _with_one_thread(step: Callable[[], None]) -> None:
    with torch_threads(1):
        step()


def _seconds(rate: Known) -> Measured:
    return Measured(1 / rate.value, 1 / rate.high, 1 / rate.low)


def _by_ratio(plain: Measured, ratio: Known) -> Measured:
    """Return the seconds of a step from its ratio to the plain model's, which neighbours do not change."""
    return Measured(plain.seconds / ratio.value, plain.seconds / ratio.high, plain.seconds / ratio.low)


def _limits(subject: Subject, threads: int) -> Limits:
    """Arithmetic and memory of one model's step: operations counted, tensors that the backward pass keeps added up."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from .. import host

    run, model = subject.plain_step()
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        run()
    parameters = list(model.parameters())
    own = {p.untyped_storage().data_ptr() for p in parameters}
    activations = sum(size for address, size in kept.items() if address not in own)
    weights = sum(p.numel() * p.element_size() for p in parameters)
    device = torch.device(subject.device)
    if device.type == "cuda":
        free, peak = torch.cuda.mem_get_info(device)[0], 0.0
    else:
        free, peak = host.available_memory_bytes(), _gemm_flop_per_s(parameters[0].dtype, threads)
    # Weights, their gradients, up to two states of an optimizer; gradients of activations live beside these.
    return Limits(counter.get_total_flops(), peak, 4 * weights + 2 * activations, int(_FREE * free))


def _gemm_flop_per_s(dtype: Any, threads: int) -> float:
    """Return the most that matrix products of this type do in a second, on these threads."""
    import torch

    clock = _clock(threads)
    with torch_threads(threads):
        a, b = torch.randn(2, _GEMM, _GEMM).to(dtype if dtype.is_floating_point else torch.float32)
        times = []
        for _ in range(6):
            begin = clock()
            torch.mm(a, b)
            times.append(clock() - begin)
    return 2 * _GEMM**3 / min(times)
