# SPDX-License-Identifier: MIT
"""Spaces of configurations: a range or a choice for each name, from which trials are drawn; and a configuration that
notes which of its values are read.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterable, KeysView, Mapping, Set, ValuesView
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgument, did_you_mean

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Uniform:
    """Any number from `low` to `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range(self, self.low, self.high)

    def draw(self, generator: random.Random) -> float:
        return generator.uniform(self.low, self.high)

    def clipped(self, value: float) -> float:
        """Return the nearest value in the range."""
        return min(max(value, self.low), self.high)


@dataclass(frozen=True)
class LogUniform(Uniform):
    """Any number from `low` to `high`, with all orders of magnitude equally likely.

    >>> import random
    >>> from dnnsuite.tuning import LogUniform
    >>> 1e-4 <= LogUniform(1e-4, 1e-1).draw(random.Random(0)) <= 1e-1
    True
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0:
            raise InvalidArgument(f"LogUniform({self.low}, {self.high}): a logarithm needs numbers above 0")

    def draw(self, generator: random.Random) -> float:
        drawn = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        return self.clipped(drawn)


@dataclass(frozen=True)
class Int:
    """An integer from `low` to `high`, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range(self, self.low, self.high)
        if self.low != int(self.low) or self.high != int(self.high):
            raise InvalidArgument(f"Int({self.low}, {self.high}): both ends are whole numbers")

    def draw(self, generator: random.Random) -> int:
        return generator.randint(self.low, self.high)

    def clipped(self, value: float) -> int:
        """Return the nearest value in the range."""
        return min(max(round(value), self.low), self.high)


@dataclass(frozen=True)
class Choice:
    """One of `values`, all equally likely."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        one = values[0] if len(values) == 1 else None
        found = tuple(one) if isinstance(one, (list, tuple)) else values
        if not found:
            raise InvalidArgument("Choice() has no value to choose: give one or more")
        object.__setattr__(self, "values", found)

    def draw(self, generator: random.Random) -> Any:
        return self.values[generator.randrange(len(self.values))]


Range = Uniform | Int | Choice
Space = Mapping[str, Range]
_KINDS = {"uniform": Uniform, "loguniform": LogUniform, "int": Int, "choice": Choice}


def _check_range(where: Any, low: Any, high: Any) -> None:
    for value in (low, high):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise InvalidArgument(f"{type(where).__name__}: {value!r} is not a finite number")
    if low > high:
        raise InvalidArgument(f"{type(where).__name__}({low}, {high}) is empty: low is above high")


def checked_space(space: Mapping[str, Any]) -> dict[str, Range]:
    """Return a range for each name: a list is a choice, any other plain value is fixed.

    Raises:
        InvalidArgument: the space is empty, or a name in it is no text.
    """
    if not space:
        raise InvalidArgument(
            "the space is empty: give a range, for example {'lr': LogUniform(1e-4, 1e-1)}, or configurations"
        )
    for name in space:
        if not isinstance(name, str):
            raise InvalidArgument(f"a space has texts for names; {name!r} is a {type(name).__name__}")
    return {name: _range_of(name, value) for name, value in space.items()}


def _range_of(name: str, value: Any) -> Range:
    if isinstance(value, (Uniform, Int, Choice)):
        return value
    if isinstance(value, Set) and not isinstance(value, KeysView):
        raise InvalidArgument(f"{name} is a set, whose order may change: give a list of its values")
    value = _listed(value)
    if isinstance(value, tuple) and len(value) == 2 and all(type(end) in (int, float) for end in value):
        raise InvalidArgument(
            f"{name} is {value}: for a range write LogUniform{value} or Uniform{value}, for a choice of two "
            f"{list(value)}, for one fixed pair [{value}]"
        )
    if isinstance(value, (list, tuple)):
        if not value:
            raise InvalidArgument(f"the space is empty: {name} has no value to choose")
        return Choice(*value) if len(value) > 1 else Choice(list(value))
    return Choice([value])


def _listed(value: Any) -> Any:
    """A list of the values of a range, of an array of one dimension, or of a dictionary's view; else `value`."""
    if isinstance(value, (range, KeysView, ValuesView)):
        return list(value)
    return value.tolist() if getattr(value, "ndim", 0) == 1 and hasattr(value, "tolist") else value


def checked_configs(given: Iterable[Any]) -> list[dict[str, Any]]:
    """Copy and check configurations: dicts, or the rows of a DataFrame.

    Raises:
        InvalidArgument: there is no configuration, or one that is no mapping of texts.
    """
    configs = given.to_dict("records") if hasattr(given, "columns") else list(given)  # type: ignore[attr-defined]
    if not configs:
        raise InvalidArgument("the space is empty: there is no configuration to try")
    for index, config in enumerate(configs):
        if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
            raise InvalidArgument(f"configuration {index} is {config!r}: give a dict of values by name")
    return [dict(config) for config in configs]


def is_finite(space: Space) -> bool:
    """True if a grid can be made of it."""
    return all(isinstance(value, (Choice, Int)) for value in space.values())


def grid(space: Space) -> list[dict[str, Any]]:
    """Every combination of a space of choices, the last name varying fastest.

    Raises:
        InvalidArgument: a range has infinitely many values; the message names it.
    """
    rows = []
    for name, value in space.items():
        if isinstance(value, Uniform):
            raise InvalidArgument(f"{name} is {value}, which no grid can cover: give a list of values, or Random(n)")
        rows.append(range(value.low, value.high + 1) if isinstance(value, Int) else value.values)
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*rows)]


def draw(space: Space, generator: random.Random) -> dict[str, Any]:
    """Draw one configuration."""
    return {name: value.draw(generator) for name, value in space.items()}


def perturbed(space: Space, config: Config, generator: random.Random, resample: float = 0.25) -> dict[str, Any]:
    """Perturb `config`: each value is drawn again, or a number is multiplied by 0.8 or 1.2, as in population-based
    training."""
    found: dict[str, Any] = dict(config)
    for name, value in space.items():
        if generator.random() < resample or isinstance(value, Choice):
            found[name] = _neighbour(value, config[name], generator)
        else:
            found[name] = value.clipped(config[name] * generator.choice((0.8, 1.2)))
    return found


def _neighbour(value: Range, now: Any, generator: random.Random) -> Any:
    """Draw a value again; of a choice one next to the current one."""
    if not isinstance(value, Choice):
        return value.draw(generator)
    at = next(place for place, one in enumerate(value.values) if alike(one, now))
    return value.values[min(max(at + generator.choice((-1, 1)), 0), len(value.values) - 1)]


def alike(one: Any, other: Any) -> bool:
    """True for the same values: also for NaN, for tensors and arrays, and for containers of them."""
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and type(one) is type(other):
        return len(one) == len(other) and all(map(alike, one, other))
    if hasattr(one, "shape") or hasattr(other, "shape"):  # whose == gives one answer per element
        same = type(one) is type(other) and one.shape == other.shape and one.dtype == other.dtype
        return same and bool((one == other).all())
    return bool(one == other or (one != one and other != other))


def space_from_plain(plain: Any, where: str = "the space") -> dict[str, Range]:
    """Return a space out of plain values, as a file has them: `{lr: {loguniform: [1e-4, 1e-1]}, width: [32, 64],
    seed: 1}`.

    Raises:
        InvalidArgument: the space is empty, or a range is not one of uniform, loguniform, int and choice.
    """
    if not isinstance(plain, Mapping):
        raise InvalidArgument(f"{where}: a space is a mapping of names to ranges, got {type(plain).__name__}")
    return checked_space({name: _from_plain(f"{where}: {name}", value) for name, value in plain.items()})


def _from_plain(where: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    kind, ends = next(iter(value.items()), ("", None))
    if len(value) != 1 or kind not in _KINDS or not isinstance(ends, (list, tuple)):
        hint = did_you_mean(str(kind), _KINDS)
        raise InvalidArgument(f"{where}: {dict(value)} is not a range; use one of {', '.join(_KINDS)} and a list{hint}")
    if kind != "choice" and len(ends) != 2:
        raise InvalidArgument(f"{where}: {kind} takes [low, high], got {list(ends)}")
    return Choice(list(ends)) if kind == "choice" else _KINDS[kind](*(_number(end) for end in ends))


def _number(value: Any) -> Any:
    """Return a number; YAML reads 1e-4 as a text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def named(value: Any) -> str:
    """Text for any value, the same in each process: without an address in memory."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _noting(method: str) -> Any:
    """Return a dict's method that notes the name that it is given; all names, if it is given none."""

    def noted(self: WatchedConfig, *given: Any) -> Any:
        self.read.update(given[:1] or dict.keys(self))
        return getattr(dict, method)(self, *given)

    return noted


class WatchedConfig(dict[str, Any]):
    """A configuration that notes which of its values are read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    __getitem__, get, pop = map(_noting, ("__getitem__", "get", "pop"))
    __iter__, keys, items, values, copy = map(_noting, ("__iter__", "keys", "items", "values", "copy"))
