# SPDX-License-Identifier: MIT
"""Trials, one configuration each on its way through a sweep, and groups of them that share an array.

Models whose code reads values of which each has its own, as an activation's name in a configuration, run one by one in
an array, by torch's operators, whose last bits may be others than those of an array. So that a trial has the same
history in any company, such a group is parted: first by those values, then, if that does not help, into single trials.
Models whose code draws from the generators of the process, of which an array has one, are parted into single trials.

An array has as many trials as make it faster, as memory holds, and not more where it has run out.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]
import torch

from .space import named

Metrics = Mapping[str, float]

#: Status of a trial that has ended for good.
ENDED = ("done", "stopped", "pruned", "given up", "failed")


@dataclass(eq=False)
class Trial:
    """A trial: its configuration, and how far it has come.

    Attributes:
        number: number from 0, in the order in which the algorithm made the trials.
        config: its values by name, with which it trains now.
        earlier: (last epoch, configuration) of those that it had before it took over another's state.
        seed: seed of its weights and random streams.
        status: waiting, running, paused, or one of `ENDED`: done, stopped (early, by patience), pruned, given up
            (by its rung), failed.
        history: metrics after each epoch.
        failure, message: class and sentence of what ended a failed trial.
        seconds: its share of the time of the arrays that it was in.
        audits_passed: steps of these arrays that were run both ways, replayed and eager, and left the same bits.
        known: epochs that an earlier process has finished, which are not trained again.
        trained: epochs in its weights as they are now; fewer than `epoch` while it makes up for some that were
            lost.
        state: weights, optimizer, schedule and random streams while it is in no array; None at its start.
        kept: a state to go back to where an array is lost, or the file of one; None is its start.
        inherited: states taken over, in population-based training.
        source: configuration and seed of the trial whose state was taken over last.
        trained_bytes: bytes of the parameters that it trains; an array holds frozen ones once.
        alone: epochs up to which it trains by itself, because an array that held it failed there.
    """

    number: int
    config: dict[str, Any]
    seed: int
    status: str = "waiting"
    history: list[dict[str, float]] = field(default_factory=list)
    failure: str = ""
    message: str = ""
    seconds: float = 0.0
    audits_passed: int = 0
    known: list[dict[str, float]] = field(default_factory=list)
    state: Any = None
    trained: int = 0
    kept: Any = None
    group: Any = None
    inherited: list[tuple[int, int]] = field(default_factory=list)  # (epoch, trial whose state it took over)
    source: tuple[dict[str, Any], int] | None = None
    earlier: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    trained_bytes: int = 0
    alone: int = 0
    best: tuple[float, int] = (float("inf"), 0)  # (value, lower is better; its epoch)
    changed: dict[str, str] = field(default_factory=dict)  # what differed when it was resumed, by name
    improved: int = 0  # epoch of the last improvement that counts for patience

    @property
    def epoch(self) -> int:
        """Epochs that it has trained and reported."""
        return len(self.history)

    def config_at(self, epoch: int) -> dict[str, Any]:
        """Configuration with which epoch `epoch`, from 1, was trained."""
        return next((config for last, config in self.earlier if epoch <= last), self.config)

    @property
    def best_config(self) -> dict[str, Any]:
        """Configuration of its best epoch; the one it has now where no epoch has a value."""
        return self.config_at(self.best[1]) if self.best[1] else self.config

    def as_it_is(self) -> Trial:
        """Return a copy that keeps what a record contains, while this trial continues."""
        lists = [*self.history], [*self.earlier], [*self.inherited]
        return replace(self, history=lists[0], earlier=lists[1], inherited=lists[2])

    def take_over(self, source: Trial, config: Mapping[str, Any] | None) -> None:
        """Continue from the state of another trial, with another configuration; None for the other trial's."""
        theirs = source.config_at(self.epoch)
        self.earlier.append((self.epoch, self.config))
        self.config = dict(config or theirs)
        self.inherited.append((self.epoch, source.number))
        self.source = theirs, source.seed

    @property
    def goes_on_as_copy(self) -> bool:
        """True if it continues from the state of another trial."""
        return bool(self.inherited) and self.inherited[-1][0] == self.trained

    @property
    def over(self) -> bool:
        """True if it has ended for good."""
        return self.status in ENDED


_DEEP = 6  # objects and containers in one another
_OF_TORCH = frozenset(vars(torch.nn.Module()))


class Group(NamedTuple):
    """Key of trials that share an array.

    Attributes:
        feed: key of the sizes of their batches.
        signature: shapes of their models.
        place: number among those that have the signature but cannot be fused.
        finer: (1, values that they have in common) once such a group was parted, (2, number of the only trial) once it
            was parted again; None before.
    """

    feed: Any
    signature: Any
    place: int
    finer: tuple[int, Any] | None = None


class Groups:
    """Groups that are parted when their models turn out to run one by one."""

    def __init__(self) -> None:
        self._levels: dict[Group, int] = {}  # times that a group was parted

    def of(self, feed: Any, signature: Any, place: int, model: torch.nn.Module, trial: Trial) -> Group:
        """The group of a trial that begins with `model`."""
        whole = Group(feed, signature, place)
        level = self._levels.get(whole, 0)
        if level == 0:
            return whole
        return whole._replace(finer=(level, values_in(model) if level == 1 else trial.number))

    def part(self, group: Group, alone: bool = False) -> None:
        """Part a group, into single trials at once if they are to be `alone`; its trials are outdated then."""
        self._levels[group._replace(finer=None)] = 2 if alone else min(_level(group) + 1, 2)

    def outdated(self, group: Group) -> bool:
        """True if the group was parted since."""
        return self._levels.get(group._replace(finer=None), 0) != _level(group)


def _level(group: Group) -> int:
    return 0 if group.finer is None else group.finer[0]


def values_in(model: torch.nn.Module) -> tuple[str, ...]:
    """Values that a model's modules keep and that may choose its code: texts, truths, functions, but no numbers."""
    return tuple(
        repr(_shown({n: v for n, v in vars(part).items() if n not in _OF_TORCH}, _DEEP)) for part in model.modules()
    )


def _shown(value: Any, depth: int) -> Any:
    if isinstance(value, (str, bytes, bool, type(None), type, enum.Enum, torch.dtype)):
        return named(value)
    if isinstance(value, (int, float, complex, torch.Tensor, torch.nn.Module)) or not depth:
        return ""
    if isinstance(value, Mapping):
        return {str(key): _shown(part, depth - 1) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(part, depth - 1) for part in value]
    if callable(value):
        code = getattr(value, "__code__", None)
        return named(value), getattr(code, "co_firstlineno", 0)
    return type(value).__qualname__, _shown(getattr(value, "__dict__", None), depth - 1)


_FIRST = 8
_SMALL_BYTES = 2**20  # of parameters: a step of a model is mostly overhead
_GAIN = 1.05  # a wider array has to be so many times as fast per model
_HEAVY_S = 0.02  # a model's step that keeps a core busy for so long gains nothing from company
_LIGHT_S = 0.004  # one for so long gains from much
_MEMORY_PART = 0.6  # of what is free


class Width:
    """Number of models in an array: 8 at first, 16 small ones; it grows by what `measured` is told after each epoch.

    Args:
        asked: a fixed number; None measures.
        most: upper limit.
    """

    def __init__(self, asked: int | None = None, most: int = 64) -> None:
        self.now = asked or _FIRST
        self._fixed, self._most = asked is not None, most
        self._before_s: float | None = None  # time of a model's step before the array grew
        self._whole: tuple[int, bool] | None = None  # (now, fixed) before it was halved for the first time
        self._begun_bytes = _used_bytes()

    def begin(self, model_bytes: int, fitting: Callable[[], int | None] = lambda: None) -> None:
        """Take the size of a first model's parameters: an array of small ones begins wider. Where `fitting` knows how
        many there is memory for, it has as many."""
        if not self._fixed and self._before_s is None and (known := fitting()) is not None:
            self.now, self._fixed = known, True
        if not self._fixed and self._before_s is None and self.now == _FIRST and 0 < model_bytes < _SMALL_BYTES:
            self.now = 2 * _FIRST

    def measured(self, models: int, seconds: float, steps: int) -> None:
        """Take the time of an epoch of `models` at once; the next may be wider."""
        if models > 1:
            self._whole = None  # that there is less room is true
        if self._fixed or models != self.now or not steps:
            return
        step_s = seconds / models / steps
        grew = self._before_s is None or self._before_s > _GAIN * step_s
        wider = min(self._most, models * (4 if step_s < _LIGHT_S else 2))
        if grew and step_s < _HEAVY_S and wider > models and self._fits(wider / models - 1):
            self.now, self._before_s = wider, step_s

    def _fits(self, more: float) -> bool:
        """True if `more` times as many models in addition fit into memory, by what those that are there took."""
        took = max(0, _used_bytes() - self._begun_bytes)
        return more * took < _MEMORY_PART * psutil.virtual_memory().available

    def halve(self, failed: int) -> None:
        """Halve the width, after memory ran out with `failed` models."""
        self._whole = self._whole or (self.now, self._fixed)
        self.now, self._fixed = max(1, failed // 2), True

    def restore(self) -> None:
        """Go back to the width before `halve`, after memory ran out with one model alone."""
        if self._whole is not None:
            (self.now, self._fixed), self._whole = self._whole, None


def _used_bytes() -> int:
    return int(psutil.Process().memory_info().rss)
