# SPDX-License-Identifier: MIT
"""Measurement for advice: a few steps of one plain model and of small arrays, in turns, in this process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .._torch_threads import torch_threads
from .prediction import Limits, Measured

__all__ = ["BS", "Measurement", "Stepper", "Subject", "measure"]

BS = (1, 2, 4)
_LEAST_WARM_UP = 16
_MOST_WARM_UP, _WARM_UP_S = (
    2000,
    30.0,
)  # of steps and seconds until an array's are recorded and its shards chosen
_ROUNDS = 9
_MOST_STEPS = 50
_ROUND_S = 0.05  # least time of one observation: several steps where they are short
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
    """Seconds of a step: of one plain model with all threads, with one thread, of arrays by B; and the limits."""

    plain: Measured
    alone: Measured | None
    arrays: Mapping[int, Measured]
    limits: Limits
    threads: int


def measure(subject: Subject, threads: int, Bs: tuple[int, ...] = BS) -> Measurement:
    """Measure a plain model and arrays of `Bs` models with `threads` CPU threads; they take turns."""
    on_cpu = not subject.device.startswith("cuda")
    with contextlib.ExitStack() as open_ways, torch_threads(threads):
        steppers: dict[Any, Stepper] = {}
        for B in (0, *Bs):
            steppers[B] = subject.stepper(B, threads)
            open_ways.callback(steppers[B].close)
        for stepper in steppers.values():
            _warm_up(stepper)
        ways: dict[Any, Callable[[], None]] = {B: stepper.step for B, stepper in steppers.items()}
        if on_cpu and threads > 1:
            ways["alone"] = lambda: _with_one_thread(steppers[0].step)
        # What one thread works is not lengthened by others that wait for its core.
        clock = _clock(threads if on_cpu else 0)
        seen = _in_turns(ways, clock)
    return Measurement(
        seen[0],
        seen.get("alone"),
        {B: seen[B] for B in Bs},
        _limits(subject, threads),
        threads if on_cpu else 1,
    )


def _clock(threads: int) -> Callable[[], float]:
    """Choose the clock for this number of CPU threads; 0 for a GPU."""
    return time.process_time if threads == 1 else time.perf_counter


def _with_one_thread(step: Callable[[], None]) -> None:
    with torch_threads(1):
        step()


def _warm_up(stepper: Stepper) -> None:
    """Step until an array has found how it runs, which its first steps try out."""
    deadline = time.perf_counter() + _WARM_UP_S
    for done in range(1, _MOST_WARM_UP + 1):
        stepper.step()
        if done >= _LEAST_WARM_UP and (stepper.settled or time.perf_counter() > deadline):
            break


def _in_turns(ways: Mapping[Any, Callable[[], None]], clock: Callable[[], float]) -> dict[Any, Measured]:
    """Seconds of a step of each way, from rounds in which all take turns."""
    lengths = {}
    for name, step in ways.items():
        step()
        begin = clock()
        step()
        lengths[name] = max(1, min(_MOST_STEPS, int(_ROUND_S / max(clock() - begin, 1e-6))))
    seen: dict[Any, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, step in ways.items():
            begin = clock()
            for _ in range(lengths[name]):
                step()
            seen[name].append((clock() - begin) / lengths[name])
    return {name: _of(values) for name, values in seen.items()}


def _of(values: list[float]) -> Measured:
    """Return the least, for what disturbs a step only makes it longer, and the third as the end of its interval."""
    ordered = sorted(values)
    return Measured(ordered[0], ordered[0], ordered[2])


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

    with (
        FlopCounterMode(display=False) as counter,
        torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t),
    ):
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
