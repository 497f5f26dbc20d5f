# SPDX-License-Identifier: MIT
"""ASHA (Li et al., MLSys 2020): successive halving that promotes a trial once it is among the best of its rung."""

from __future__ import annotations

import random
from collections import deque

from ...errors import InvalidArgument
from .base import Algorithm, Decision, Order, Setting
from .listed import drawn


class ASHA(Algorithm):
    """ASHA: `trials` in all, `parallel` at once; rungs at `min_epochs`, `eta` times as many, and so on to the sweep's
    epochs.

    `parallel` is part of the search, as who is promoted depends on who has ended: the history is the same on every
    machine and at every width.
    """

    def __init__(self, trials: int = 27, min_epochs: int = 1, eta: int = 3, parallel: int = 8) -> None:
        for name, value, least in (("trials", trials, 1), ("min_epochs", min_epochs, 1), ("eta", eta, 2),
                                   ("parallel", parallel, 1)):  # fmt: skip
            if not isinstance(value, int) or value < least:
                raise InvalidArgument(f"{name} is a whole number, {least} or more; got {value!r}")
        self.trials, self.min_epochs, self.eta, self.parallel = trials, min_epochs, eta, parallel

    def begin(self, setting: Setting) -> None:
        self._ends = []  # epochs of each rung
        until = self.min_epochs
        while until < setting.epochs:
            self._ends.append(until)
            until *= self.eta
        self._ends.append(setting.epochs)
        self._values: list[dict[int, float]] = [{} for _ in self._ends]
        self._promoted: list[set[int]] = [set() for _ in self._ends]
        self._over: set[int] = set()
        configs = drawn(setting, random.Random(setting.seed), self.trials)
        self._new = deque(enumerate(configs))
        self._running: set[int] = set()
        self._at: dict[int, int] = {}

    def next(self) -> Order | None:
        order = self._promotion() or (Order(*self._new.popleft()) if self._new else None)
        if order is not None:
            self._running.add(order.trial)
            self._at.setdefault(order.trial, 0)
        return order

    def _promotion(self) -> Order | None:
        """Return the best trial of the highest rung that has one to promote."""
        for rung in range(len(self._ends) - 2, -1, -1):
            values, promoted = self._values[rung], self._promoted[rung]
            best = sorted(values, key=lambda trial: (values[trial], trial))[: len(values) // self.eta]
            for trial in best:
                if trial not in promoted and trial not in self._over:
                    promoted.add(trial)
                    self._at[trial] = rung + 1
                    return Order(trial)
        return None

    def report(self, trial: int, epoch: int, value: float) -> Decision:
        rung = self._at[trial]
        if epoch < self._ends[rung]:
            return Decision.GO
        self._values[rung][trial] = value
        self._running.discard(trial)
        if rung == len(self._ends) - 1:
            self._over.add(trial)
            return Decision.DONE
        return Decision.PAUSE

    def ended(self, trial: int, value: float | None) -> None:
        self._values[self._at[trial]][trial] = float("inf") if value is None else value
        self._over.add(trial)
        self._running.discard(trial)

    def given_up(self) -> list[int]:
        """Trials that will not be promoted any more, once the search ends."""
        if self._new or self._running:
            return []
        left = [trial for trial in self._at if trial not in self._over]
        if any(self._promotable(trial) for trial in left):
            return []
        self._over.update(left)
        return sorted(left)

    def _promotable(self, trial: int) -> bool:
        rung = self._at[trial]
        values = self._values[rung]
        best = sorted(values, key=lambda other: (values[other], other))[: len(values) // self.eta]
        return rung < len(self._ends) - 1 and trial in best
