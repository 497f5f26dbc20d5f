# SPDX-License-Identifier: MIT
"""Speedup of an array over its models one at a time: after each epoch one of them takes a few steps alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from .. import timing
from .checkpoints import random_state, set_random_state
from .experiment import Experiment
from .feed import Fed
from .phases import Phases
from .processes import Processes
from .stepper import Stepper

__all__ = ["STEPS", "Alone", "Speedup", "speedup"]

_UNTIMED = 1  # steps that begin a measurement
STEPS = _UNTIMED + 4
_ENOUGH = 3  # measurements, after which they take at most one part in so many of the time:
_SHARE = 100


@dataclass(frozen=True)
class Speedup:
    """Ratio of an array's items per second to those of models alone; `low` and `high` bound a 95 % interval."""

    value: float
    low: float | None
    high: float | None


def speedup(pairs: Iterable[tuple[float, float]]) -> Speedup | None:
    """Return the speedup from pairs of seconds per item, alone and in the array; None without any."""
    pairs = list(pairs)
    if not pairs:
        return None
    alone, array = ([pair[k] for pair in pairs] for k in range(2))
    if len(pairs) < _ENOUGH:  # an interval would span all that there is
        return Speedup(statistics.fmean(alone) / statistics.fmean(array), None, None)
    found = timing.compare(alone, array)
    return Speedup(found.ratio, found.low, found.high)


class Alone:
    """A model of an array, trained by itself for a few steps now and then, with a learning rate of 0.

    Attributes:
        pairs: (seconds per item alone, in the array) of each measurement.
        seconds: seconds that all of them took.
    """

    def __init__(self, experiment: Experiment, processes: Processes) -> None:
        self._experiment, self._processes = experiment, processes
        self._stepper: Stepper | None = None
        self.pairs: list[tuple[float, float]] = []
        self.seconds = 0.0

    def due(self, trained_s: float) -> bool:
        """Return True if a measurement is worth its time after `trained_s` seconds of training."""
        return len(self.pairs) < _ENOUGH or self.seconds < trained_s / _SHARE

    def measure(self, batches: Iterable[Fed], array_s: float) -> None:
        """Take steps on these batches; `array_s` is the time of an item in the array meanwhile."""
        began_s = time.perf_counter()
        before = random_state(self._processes.device)
        try:
            took_s = self._per_item_s(batches)
        finally:
            set_random_state(before, self._processes.device)
            self.seconds += time.perf_counter() - began_s
        if took_s is not None:
            self.pairs.append((took_s, array_s))

    def _per_item_s(self, batches: Iterable[Fed]) -> float | None:
        if self._stepper is None:
            self._stepper = Stepper(self._experiment, self._processes)
            for group in self._stepper.optimizer.param_groups:
                group["lr"] = 0.0  # it stays as it began, however long the run is
        self._stepper.model.train()
        items, began_s = 0, 0.0
        for i, (share, batch) in enumerate(batches):
            if i == _UNTIMED:
                began_s = self._now_s()
            inputs, labels = self._stepper.place(batch)
            self._stepper.train(inputs, labels, share, _NO_PHASES)
            items += share.whole if i >= _UNTIMED else 0
        return (self._now_s() - began_s) / items if items else None

    def _now_s(self) -> float:
        if self._processes.device.type == "cuda":
            torch.cuda.synchronize(self._processes.device)
        return time.perf_counter()


_NO_PHASES = Phases(0)
