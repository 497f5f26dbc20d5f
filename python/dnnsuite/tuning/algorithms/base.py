# SPDX-License-Identifier: MIT
"""The contract of an algorithm: it orders trials, gets a value after each epoch, and decides which continue. Also grid
and random search, in which every trial trains to the end, whatever the others do, and population-based training
(Jaderberg et al., 2017), a generation at a time.
"""

from __future__ import annotations

import abc
import enum
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidArgument
from ..goal import check_whole
from ..space import Config, Space, draw, grid, perturbed


class Decision(enum.Enum):
    """The fate of a trial after an epoch."""

    GO = "go"  # another epoch
    PAUSE = "pause"  # wait until it is ordered to continue, or given up
    DONE = "done"
    PRUNED = "pruned"


@dataclass(frozen=True)
class Order:
    """Instruction to begin or continue a trial.

    Attributes:
        trial: number of the trial, from 0.
        config: configuration of a trial that begins, or with which it continues; None leaves its own unchanged.
        source: the trial whose weights, optimizer and schedule it takes over.
    """

    trial: int
    config: Config | None = None
    source: int | None = None


@dataclass(frozen=True)
class Setting:
    """The conditions of a search.

    Attributes:
        space: the ranges; empty if `configs` are given.
        configs: configurations to try, in order.
        epochs: largest number of epochs of a trial.
        seed: seed of random draws.
        maximize: True if larger values of the metric are better.
        id: name of the directory of the sweep, which is the same after it is resumed; empty without a directory.
        fits: function (source, config) that returns True if a trial of `config` can continue from the state of a trial
            of `source`.
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
    """Size of a search: number of trials, of model-epochs, and of model-epochs if each rung began from scratch."""

    trials: int
    epochs: int
    epochs_from_scratch: int


class Algorithm(abc.ABC):
    """Base class of the search algorithms.

    Attributes:
        parallel: number of trials that advance together, one epoch at a time, if decisions depend on the order of
            values; None if they do not. It is part of the algorithm, not of the machine, because the history depends on
            it.
        keeps_states: True if the algorithm may ask for the state of a trial at its last pause but one.
    """

    parallel: int | None = None
    keeps_states = False

    @abc.abstractmethod
    def begin(self, setting: Setting) -> None:
        """Start a search."""

    @abc.abstractmethod
    def next(self) -> Order | None:
        """Return the next trial to begin or continue; None if there is none at the moment."""

    @abc.abstractmethod
    def report(self, trial: int, epoch: int, value: float) -> Decision:
        """Receive the `value` of a trial after `epoch` epochs (lower is better), and decide its fate."""

    def ended(self, trial: int, value: float | None) -> None:  # noqa: B027
        """Receive the end of a trial: its last value after early stopping, None after a failure."""

    def given_up(self) -> list[int]:
        """Return the paused trials that will not continue; each is returned once."""
        return []

    def plan(self) -> Plan | None:
        """Return the size of the search, if it is known in advance."""
        return None

    def __repr__(self) -> str:
        return self.describe()

    @property
    def code(self) -> dict[str, Any]:
        """Return the class of an algorithm that is not dnnsuite's, because its code decides what is tried."""
        own = type(self)
        return {} if own.__module__.startswith(__name__.partition(".")[0] + ".") else {"search": own}

    def describe(self) -> str:
        """Return one line that distinguishes this search from others."""
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({values})"


class Listed(Algorithm):
    """Search that tries the given configurations in order."""

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
    """Grid search: every combination of values in the space."""

    def _configs(self, setting: Setting) -> list[Config]:
        return list(setting.configs) or list(grid(setting.space))


class Random(Listed):
    """Random search: `trials` configurations are drawn from the space."""

    def __init__(self, trials: int = 16) -> None:
        check_whole(1, trials=trials)
        self.trials = trials

    def _configs(self, setting: Setting) -> list[Config]:
        return drawn(setting, random.Random(setting.seed), self.trials)


def drawn(setting: Setting, generator: random.Random, count: int) -> list[Config]:
    """Draw `count` configurations of the space; from a given list, in random order."""
    if not setting.configs:
        return [draw(setting.space, generator) for _ in range(count)]
    order = list(setting.configs)
    generator.shuffle(order)
    return order[:count]


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
