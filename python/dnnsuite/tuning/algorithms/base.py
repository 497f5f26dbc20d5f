# SPDX-License-Identifier: MIT
"""The contract of an algorithm: it orders trials, hears a value after each epoch, and decides which continue. Grid and
random search, in which every trial trains to the end, whatever the others do."""

from __future__ import annotations

import abc
import enum
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...errors import InvalidArgument
from ..space import Config, Space, draw, grid


class Decision(enum.Enum):
    """Fate of a trial after an epoch."""

    GO = "go"  # another epoch
    PAUSE = "pause"  # wait until it is ordered to continue, or given up
    DONE = "done"
    PRUNED = "pruned"


@dataclass(frozen=True)
class Order:
    """Order to begin a trial, or to continue it.

    Attributes:
        trial: its number, from 0.
        config: values of a trial that begins, or that continues with other ones; None keeps its own.
        source: the trial whose weights, optimizer and schedule it takes over.
    """

    trial: int
    config: Config | None = None
    source: int | None = None


@dataclass(frozen=True)
class Setting:
    """A search: a `space`, or `configs` to try in their order; `epochs` of a trial at most; the `seed` of draws.

    `id` is that of the sweep's directory, the same after it was resumed; empty without one. `fits` tells whether a
    trial of the second configuration can continue from the state of one of the first.
    """

    space: Space
    configs: Sequence[Config]
    epochs: int
    seed: int
    maximize: bool = False
    id: str = ""
    fits: Callable[[Config, Config], bool] = lambda source, config: True


@dataclass(frozen=True)
class Plan:
    """Size of a search: trials, model-epochs as rungs continue, and as they would be if each began from scratch."""

    trials: int
    epochs: int
    epochs_from_scratch: int


class Algorithm(abc.ABC):
    """Base of the algorithms.

    Attributes:
        parallel: number of trials that advance together, an epoch at a time, where decisions depend on the order of
            values; None where they do not. It is a number of the algorithm's, not of the machine's: the history
            depends on it.
        keeps_states: a trial's state at its last pause but one may be asked for.
    """

    parallel: int | None = None
    keeps_states = False

    @abc.abstractmethod
    def begin(self, setting: Setting) -> None:
        """Start a search anew."""

    @abc.abstractmethod
    def next(self) -> Order | None:
        """Return the next trial to begin or to continue; None while there is none."""

    @abc.abstractmethod
    def report(self, trial: int, epoch: int, value: float) -> Decision:
        """Take the `value` (lower is better) of a trial after `epoch` epochs."""

    def ended(self, trial: int, value: float | None) -> None:  # noqa: B027
        """Take the end of a trial: its last value after early stopping, None after a failure."""

    def given_up(self) -> list[int]:
        """Return the paused trials that will not continue, each named once."""
        return []

    def plan(self) -> Plan | None:
        """Size of the search, where it is known before."""
        return None

    def __repr__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """One line that tells two searches apart."""
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({values})"


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
