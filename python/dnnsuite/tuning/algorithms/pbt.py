# SPDX-License-Identifier: MIT
"""Population-based training (Jaderberg et al., 2017), a generation at a time."""

from __future__ import annotations

import random
from collections import deque

from ...errors import InvalidArgument
from ..checks import check_whole
from ..space import Config, perturbed
from .base import Algorithm, Decision, Order, Plan, Setting, drawn


class PBT(Algorithm):
    """Population-based training (Jaderberg et al., 2017): the worst trials become copies of the best.

    A copy takes over weights and optimizer state, and explores: each number is multiplied by 0.8 or 1.2, or drawn
    again. Its schedule uses the copy's own values, at the epoch that has been reached; so does a buffer or a frozen
    parameter that `make_model` fills from the configuration. Values that decide shapes or the kind of optimizer stay
    those of the source. All trials wait for each other at the end of a generation, so the history does not depend on
    the machine.

    Args:
        population: number of trials; all of them train to the end.
        interval: number of epochs in a generation, after which copies are made.
        quantile: fraction of the population that is replaced, by copies from the best trials of the same fraction;
            above 0 and at most 0.5.
        resample: probability that a number is drawn again.

    Raises:
        InvalidArgument: a number is out of its range, or the sweep has a list of configurations instead of a space.
    """

    keeps_states = True

    def __init__(self, population: int = 8, interval: int = 1, quantile: float = 0.25, resample: float = 0.25) -> None:
        check_whole(1, population=population, interval=interval)
        if not 0 < quantile <= 0.5:
            raise InvalidArgument(f"quantile is above 0 and at most 0.5, got {quantile}")
        self.population, self.interval, self.quantile, self.resample = (population, interval, quantile, resample)

    def begin(self, setting: Setting) -> None:
        if setting.configs:
            raise InvalidArgument("PBT explores a space: give ranges, not a list of configurations")
        self._setting, self._generator = setting, random.Random(setting.seed)
        self._configs = dict(enumerate(drawn(setting, self._generator, self.population)))
        self._orders = deque(Order(trial, config) for trial, config in self._configs.items())
        self._alive = set(self._configs)
        self._values: dict[int, float] = {}

    def next(self) -> Order | None:
        return self._orders.popleft() if self._orders else None

    def report(self, trial: int, epoch: int, value: float) -> Decision:
        if epoch >= self._setting.epochs:
            return Decision.DONE
        if epoch % self.interval:
            return Decision.GO
        self._values[trial] = value
        self._end_generation()
        return Decision.PAUSE

    def ended(self, trial: int, value: float | None) -> None:
        self._alive.discard(trial)
        self._values.pop(trial, None)
        self._end_generation()

    def _end_generation(self) -> None:
        if not self._alive or self._values.keys() != self._alive:
            return
        order = sorted(self._alive, key=lambda trial: (self._values[trial], trial))
        count = int(len(order) * self.quantile) or int(len(order) > 1)
        best, worst = order[:count], set(order[len(order) - count :])
        for trial in sorted(order):
            if trial not in worst:
                self._orders.append(Order(trial))
                continue
            source = self._generator.choice(best)
            explored = perturbed(self._setting.space, self._configs[source], self._generator, self.resample)
            config = self._fitting(self._configs[source], explored)
            self._configs[trial] = config
            self._orders.append(Order(trial, config, source))
        self._values = {}

    def _fitting(self, source: Config, explored: Config) -> Config:
        """Return the explored values, but the source's own of those with which its state would not fit, as a width."""
        if self._setting.fits(source, explored):
            return explored
        found = dict(source)
        for name, value in explored.items():
            if self._setting.fits(source, {**found, name: value}):
                found[name] = value
        return found

    def plan(self) -> Plan:
        epochs = self.population * self._setting.epochs
        return Plan(self.population, epochs, epochs)
