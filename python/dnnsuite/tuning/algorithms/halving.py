# SPDX-License-Identifier: MIT
"""Successive halving (Jamieson and Talwalkar, 2016) and Hyperband (Li et al., 2018), in whose rungs trials continue.

ASHA (Li et al., MLSys 2020): successive halving that promotes a trial once it is among the best of its rung.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

from ...errors import InvalidArgument
from ..goal import check_whole
from ..space import Config
from .base import Algorithm, Decision, Order, Plan, Setting, drawn

Rung = tuple[int, int]  # (trials, epochs that each has trained at its end)


class Bracket:
    """Trials of consecutive numbers that are halved at the end of each rung."""

    def __init__(self, first: int, configs: Sequence[Config], rungs: Sequence[Rung]) -> None:
        self._rungs = list(rungs)
        self._at = 0
        self._to_order = deque(Order(first + i, config) for i, config in enumerate(configs))
        self._members = list(range(first, first + len(configs)))
        self._values: dict[int, float] = {}
        self._over: dict[int, float] = {}  # those that continue no more, and the value that ranks them
        self.given_up: list[int] = []

    def next(self) -> Order | None:
        return self._to_order.popleft() if self._to_order else None

    def report(self, trial: int, epoch: int, value: float) -> Decision:
        if epoch < self._rungs[self._at][1]:
            return Decision.GO
        last = self._at == len(self._rungs) - 1
        self._values[trial] = value
        self._end_rung()
        return Decision.DONE if last else Decision.PAUSE

    def ended(self, trial: int, value: float | None) -> None:
        self._over[trial] = self._values[trial] = float("inf") if value is None else value
        self._end_rung()

    def _end_rung(self) -> None:
        """Choose those that continue, once all of the rung have a value; rungs of which none continues end at once."""
        while self._at < len(self._rungs) - 1 and len(self._values) == len(self._members):
            self._at += 1
            order = sorted(self._members, key=lambda trial: (self._values[trial], trial))
            kept = order[: self._rungs[self._at][0]]
            self.given_up += [trial for trial in order[len(kept) :] if trial not in self._over]
            self._members = sorted(kept)
            self._values = {trial: self._over[trial] for trial in kept if trial in self._over}
            self._to_order.extend(Order(trial) for trial in self._members if trial not in self._over)


class Brackets(Algorithm):
    """Base of algorithms whose trials are in independent brackets."""

    def _open(self, configs: Sequence[Config], schedules: Sequence[Sequence[Rung]]) -> None:
        self._schedules = [rungs for rungs in schedules if rungs]
        self._brackets: list[Bracket] = []
        self._bracket_of: list[Bracket] = []
        for rungs in self._schedules:
            first, count = len(self._bracket_of), rungs[0][0]
            bracket = Bracket(first, configs[first : first + count], rungs)
            self._brackets.append(bracket)
            self._bracket_of += [bracket] * count

    def next(self) -> Order | None:
        return next(filter(None, (bracket.next() for bracket in self._brackets)), None)

    def report(self, trial: int, epoch: int, value: float) -> Decision:
        return self._bracket_of[trial].report(trial, epoch, value)

    def ended(self, trial: int, value: float | None) -> None:
        self._bracket_of[trial].ended(trial, value)

    def given_up(self) -> list[int]:
        found = [trial for bracket in self._brackets for trial in bracket.given_up]
        for bracket in self._brackets:
            bracket.given_up = []
        return found

    def plan(self) -> Plan:
        continued, from_scratch = saving(self._schedules)
        return Plan(len(self._bracket_of), continued, from_scratch)


class SuccessiveHalving(Brackets):
    """Successive halving: the best trials of each rung continue to train.

    Args:
        trials: number of trials in the first rung.
        min_epochs: epochs of the first rung; each further rung has `eta` times as many, up to the epochs of the sweep.
        eta: one in `eta` trials continues to the next rung; 2 or more.

    Raises:
        InvalidArgument: a number is too small.
    """

    def __init__(self, trials: int = 27, min_epochs: int = 1, eta: int = 3) -> None:
        check_whole(1, trials=trials, min_epochs=min_epochs)
        check_whole(2, eta=eta)
        self.trials, self.min_epochs, self.eta = trials, min_epochs, eta

    def begin(self, setting: Setting) -> None:
        configs = drawn(setting, random.Random(setting.seed), self.trials)
        rungs, count, until = [], len(configs), min(self.min_epochs, setting.epochs)
        while count and until < setting.epochs:
            rungs.append((count, until))
            count, until = count // self.eta, until * self.eta
        if count:
            rungs.append((count, setting.epochs))
        self._open(configs, [rungs])


class Hyperband(Brackets):
    """Hyperband, with R equal to the epochs of the sweep.

    Args:
        eta: one in `eta` trials continues to the next rung; 2 or more.
        skip_last: number of last rungs to leave out of each bracket, as HFTA does.

    >>> from dnnsuite.tuning import Hyperband
    >>> Hyperband(eta=3)
    Hyperband(eta=3, skip_last=0)
    """

    def __init__(self, eta: int = 3, skip_last: int = 0) -> None:
        check_whole(2, eta=eta)
        check_whole(0, skip_last=skip_last)
        self.eta, self.skip_last = eta, skip_last

    def begin(self, setting: Setting) -> None:
        schedules = hyperband_rungs(setting.epochs, self.eta, self.skip_last)
        count = self.trials_for(setting.epochs)
        if not count:
            raise InvalidArgument(
                f"skip_last={self.skip_last} leaves Hyperband of R={setting.epochs} no rung: give less, or more epochs"
            )
        configs = drawn(setting, random.Random(setting.seed), count)
        if len(configs) < count:
            raise InvalidArgument(
                f"Hyperband of R={setting.epochs} begins {count} trials, and there are {len(configs)} configurations: "
                "give a space, more of them, fewer epochs, or SuccessiveHalving()"
            )
        self._open(configs, schedules)

    def trials_for(self, epochs: int) -> int:
        """Return the number of trials in all brackets together, if R is `epochs`."""
        return sum(rungs[0][0] for rungs in hyperband_rungs(epochs, self.eta, self.skip_last) if rungs)


def hyperband_rungs(R: int, eta: int = 3, skip_last: int = 0) -> list[list[Rung]]:
    """Return the rungs (trials, epochs) of each bracket; the bracket with the most trials is first.

    They are computed with integers, because log(243) / log(3) is below 5 in floating point.

    Args:
        R: largest number of epochs of a trial.
        eta: one in `eta` trials continues to the next rung, which has `eta` times as many epochs.
        skip_last: number of last rungs to leave out of each bracket; a bracket without a rung is empty.
    """
    check_whole(2, eta=eta)
    s_max = 0
    while eta ** (s_max + 1) <= R:
        s_max += 1
    brackets = []
    for s in range(s_max, -1, -1):
        n = -(-(s_max + 1) * eta**s // (s + 1))
        rungs = [(n // eta**i, max(1, round(R / eta ** (s - i)))) for i in range(max(0, s + 1 - skip_last))]
        brackets.append([rung for rung in rungs if rung[0]])
    return brackets


def saving(brackets: Sequence[Sequence[Rung]]) -> tuple[int, int]:
    """Return (model-epochs if survivors continue, model-epochs if every rung begins from scratch)."""
    continued = from_scratch = 0
    for rungs in brackets:
        before = 0
        for count, until in rungs:
            continued += count * (until - before)
            from_scratch += count * until
            before = until
    return continued, from_scratch


class ASHA(Algorithm):
    """Asynchronous successive halving (Li et al., MLSys 2020): a trial is promoted as soon as it is among the best.

    Args:
        trials: total number of trials.
        min_epochs: epochs of the first rung; each further rung has `eta` times as many, up to the epochs of the sweep.
        eta: one in `eta` trials is promoted; 2 or more.
        parallel: number of trials at once. It is part of the search, because promotion depends on which trials have
            ended. The history is therefore the same on every machine and at every width.

    Raises:
        InvalidArgument: a number is too small.
    """

    def __init__(self, trials: int = 27, min_epochs: int = 1, eta: int = 3, parallel: int = 8) -> None:
        check_whole(1, trials=trials, min_epochs=min_epochs, parallel=parallel)
        check_whole(2, eta=eta)
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
        """Return the trials that will not be promoted any more, once the search has ended."""
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
