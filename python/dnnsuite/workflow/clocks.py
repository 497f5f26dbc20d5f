# SPDX-License-Identifier: MIT
"""Clocks that date each step, shared by all processes of a machine, without a synchronise in the loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import timing
from .._lazy import torch
from .._runs.rates import Steps
from .._runs.turn_task import Clock as Clock

# Share of an epoch spent waiting for steps that had returned already, above which the job counts as
# asynchronous.
_ASYNCHRONOUS = 0.02


class HostClock:
    """Clock for the CPU: reads the time at which `step()` returns.

    A job whose steps go on in threads of its own is recognised by the time its `synchronize` takes; the
    last step of an epoch always ends when the job is synchronised.
    """

    def __init__(self, epochs: int, iters_per_epoch: int) -> None:
        self._timer = timing.StepTimer(epochs * iters_per_epoch)
        self._iters = iters_per_epoch
        self._synchronised_ns: list[int] = []

    def begin_epoch(self) -> None:
        pass

    def begin_step(self) -> None:
        self._timer.start()

    def end_step(self, items: int) -> None:
        self._timer.stop(items)

    def end_epoch(self) -> None:
        self._synchronised_ns.append(timing.now_ns())

    @property
    def asynchronous(self) -> bool:
        """True if steps went on after they had returned: then only whole epochs are dated exactly."""
        starts, stops = (self._timer.starts_ns[:: self._iters], self._timer.stops_ns[self._iters - 1 :: self._iters])
        ends = np.array(self._synchronised_ns)
        return bool(np.any((ends - stops) > _ASYNCHRONOUS * (ends - starts)))

    def steps(self) -> Steps:
        starts, stops = np.array(self._timer.starts_ns), np.array(self._timer.stops_ns)
        stops[self._iters - 1 :: self._iters] = self._synchronised_ns
        epochs = np.arange(len(stops), dtype=np.int64) // self._iters
        return Steps(starts, stops, np.array(self._timer.items, dtype=np.int64), epochs)


class CudaClock:
    """Clock for CUDA, where `step()` returns early: an event after each step, resolved when the epoch is
    synchronised.

    The device is idle at the start of an epoch, so host time and the first event coincide there; every step
    of the epoch is dated from it. `torch.cuda.Event` resolves about half a microsecond. Not run on a GPU yet.
    """

    asynchronous = False  # the device's own times are used, which are exact

    def __init__(self, epochs: int, iters_per_epoch: int, cuda: Any = None) -> None:
        if cuda is None:
            cuda = torch.cuda
        self._cuda = cuda
        # One epoch's worth, made before the loop and used again in every epoch.
        self._events = [cuda.Event(enable_timing=True) for _ in range(iters_per_epoch + 1)]
        self._items: list[int] = []
        self._of_epoch: list[int] = []
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._epoch = 0
        self._recorded = 0
        self._epoch_start_ns = 0

    def begin_epoch(self) -> None:
        self._cuda.synchronize()
        self._recorded = 0
        self._epoch_start_ns = timing.now_ns()
        self._events[0].record()

    def begin_step(self) -> None:
        pass

    def end_step(self, items: int) -> None:
        self._recorded += 1
        self._events[self._recorded].record()
        self._items.append(items)
        self._of_epoch.append(self._epoch)

    def end_epoch(self) -> None:
        """Date the steps of the epoch. Call after the job has synchronised."""
        previous = self._epoch_start_ns
        for event in self._events[1 : self._recorded + 1]:
            stop = self._epoch_start_ns + round(self._events[0].elapsed_time(event) * 1e6)  # ms → ns
            self._starts.append(previous)
            self._stops.append(stop)
            previous = stop
        self._epoch += 1

    def steps(self) -> Steps:
        columns = (self._starts, self._stops, self._items, self._of_epoch)
        starts, stops, items, epochs = (np.array(column, dtype=np.int64) for column in columns)
        return Steps(starts, stops, items, epochs)


def clock_for(device: str, epochs: int, iters_per_epoch: int) -> Clock:
    """Return the clock for a device type."""
    kind = CudaClock if device.startswith("cuda") else HostClock
    return kind(epochs, iters_per_epoch)
