# SPDX-License-Identifier: MIT
"""Groups of trials that share an array.

Models whose code reads values of which each has its own, as an activation's name in a configuration, run one by one in
an array, by torch's operators, whose last bits may be others than those of an array. So that a trial has the same
history in any company, such a group is parted: first by those values, then, if that does not help, into single trials.
Models whose code draws from the generators of the process, of which an array has one, are parted into single trials.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from .space import named
from .trial import Trial

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
