# SPDX-License-Identifier: MIT
"""Grid and random search: every trial trains to the end, whatever the others do."""

from __future__ import annotations

import random
from collections import deque

from ...errors import InvalidArgument
from ..space import Config, draw, grid
from .base import Algorithm, Decision, Order, Plan, Setting


class Listed(Algorithm):
    """The configurations that were given, in their order."""

    def begin(self, setting: Setting) -> None:
        self._epochs = setting.epochs
        configs = self._configs(setting)
        self._count = len(configs)
        self._waiting = deque(enumerate(configs))

    def _configs(self, setting: Setting) -> list[Config]:
        if not setting.configs:
            raise InvalidArgument("Listed takes a list of configurations, got a space: use Grid() or Random(n)")
        return list(setting.configs)

    def next(self) -> Order | None:
        return Order(*self._waiting.popleft()) if self._waiting else None

    def report(self, trial: int, epoch: int, value: float) -> Decision:
        return Decision.DONE if epoch >= self._epochs else Decision.GO

    def plan(self) -> Plan:
        return Plan(self._count, self._count * self._epochs, self._count * self._epochs)


class Grid(Listed):
    """Every combination of the space."""

    def _configs(self, setting: Setting) -> list[Config]:
        return list(setting.configs) or list(grid(setting.space))


class Random(Listed):
    """`trials` configurations drawn from the space."""

    def __init__(self, trials: int = 16) -> None:
        self.trials = trials
        if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
            raise InvalidArgument(f"Random({trials!r}): trials is a whole number, 1 or more")

    def _configs(self, setting: Setting) -> list[Config]:
        return drawn(setting, random.Random(setting.seed), self.trials)


def drawn(setting: Setting, generator: random.Random, count: int) -> list[Config]:
    """Draw `count` configurations of the space; from a given list, in random order."""
    if not setting.configs:
        return [draw(setting.space, generator) for _ in range(count)]
    order = list(setting.configs)
    generator.shuffle(order)
    return order[:count]
