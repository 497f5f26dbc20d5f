# SPDX-License-Identifier: MIT
"""Readers of values that code can see: they make copies that compare unequal once a value has changed."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .held_objects import MOST, slots_of_class

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_CONTAINERS = (list, dict, set, tuple, collections.deque)
_HASHED = frozenset((bool, int, float, complex, str, bytes, type(None)))
_SHORT = 16  # elements of a container that are looked into, and may become inputs of a recording
_LONG = 2**12  # elements of a container that are compared; of a longer one its length is
_DEEP = 5  # containers and objects in one another that are looked into
_NAMESPACES = (type, types.ModuleType)

Path = tuple[int, ...]
Put = Callable[[Any], None]


class Reader:
    """Reader of a value that code reaches by `names`; call it for a copy of the current value."""

    __slots__ = ("names",)
    names: frozenset[str]

    def held(self) -> Any:
        """Return the value itself."""
        raise NotImplementedError

    def put(self, value: Any) -> None:
        """Put another value in its place."""
        raise NotImplementedError

    def __call__(self) -> Any:
        return value_of(self.held(), self.names)

    def objects(self) -> Iterator[Any]:
        """Yield the objects that stand in that copy by their identity."""
        return objects_in(self.held(), self.names)

    def places(self) -> Iterator[tuple[Path, Any, Put]]:
        """Yield each plain value that can be replaced: its path in the copy, itself, and what replaces it."""
        return _places(self.held(), self.names, (), self.put, _DEEP)


class CellReader(Reader):
    """Reader of a variable that a function closes over."""

    __slots__ = ("_cell",)

    def __init__(self, cell: types.CellType, names: frozenset[str]) -> None:
        self._cell, self.names = cell, names

    def held(self) -> Any:
        return cell_contents(self._cell)

    def put(self, value: Any) -> None:
        self._cell.cell_contents = value


class NameReader(Reader):
    """Reader of a global, or of an attribute of an object."""

    __slots__ = ("_name", "_space")

    def __init__(self, space: dict[str, Any], name: str, names: frozenset[str]) -> None:
        self._space, self._name, self.names = space, name, names

    def held(self) -> Any:
        return self._space.get(self._name)

    def put(self, value: Any) -> None:
        self._space[self._name] = value


class NamespaceReader(Reader):
    """Reader of a class or a module of the user's: of its plain values that code names."""

    __slots__ = ("_space",)

    def __init__(self, space: Any, names: frozenset[str]) -> None:
        self._space, self.names = space, names

    def held(self) -> Any:
        return self._space

    def put(self, value: Any) -> None:
        """Do nothing: it stays the same one."""


class DefaultsReader(Reader):
    """Reader of the defaults of a function's arguments."""

    __slots__ = ("_function",)

    def __init__(self, function: types.FunctionType, names: frozenset[str]) -> None:
        self._function, self.names = function, names

    def held(self) -> Any:
        return self._function.__defaults__, self._function.__kwdefaults__

    def put(self, value: Any) -> None:
        """Do nothing: what can change is what they hold."""


def cell_contents(cell: types.CellType) -> Any:
    """Return the contents of a cell; None for an empty one."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def value_of(value: Any, names: frozenset[str] = frozenset(), depth: int = _DEEP) -> Any:
    """Copy `value` so that the copy compares unequal once `value` has changed.

    Args:
        names: attributes of objects that count.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.size <= MOST and value.dtype != object else id(value)
    if isinstance(value, _CONTAINERS):
        if not depth or len(value) > _SHORT:
            return _long(value)
        if isinstance(value, dict):
            return tuple(
                (value_of(key, names, 1), value_of(one, names, depth - 1)) for key, one in value.items()
            )
        return tuple(value_of(part, names, depth - 1) for part in value)
    shown = _shown(value, names, depth)
    if shown is None:
        return id(value)
    return id(value), tuple((name, value_of(one, names, depth - 1)) for name, one in shown)


def objects_in(value: Any, names: frozenset[str], depth: int = _DEEP) -> Iterator[Any]:
    """Yield the objects that stand in `value_of` by their identity."""
    if isinstance(value, _PLAIN):
        return
    if isinstance(value, np.ndarray):
        if value.size > MOST or value.dtype == object:
            yield value
    elif isinstance(value, _CONTAINERS):
        parts = [part for item in value.items() for part in item] if isinstance(value, dict) else value
        deeper = depth - 1 if depth and len(value) <= _SHORT else 0
        for part in parts:
            yield from objects_in(part, names, deeper) if deeper else [part] * (type(part) not in _HASHED)
    else:
        yield value
        for _, part in _shown(value, names, depth) or ():
            yield from objects_in(part, names, depth - 1)


def holds_values(value: Any, names: frozenset[str], depth: int = _DEEP) -> bool:
    """Return True if `value` is, or holds under `names`, what code computes or decides with: no function or module."""
    if isinstance(value, (*_PLAIN, *_CONTAINERS, np.ndarray)):
        return True
    return any(holds_values(one, names, depth - 1) for _, one in _shown(value, names, depth) or ())


def _long(value: Any) -> Any:
    """Copy a container of many elements, those that are no plain values by identity; return the length of a longer
    one."""
    if len(value) > _LONG:
        return len(value)
    if isinstance(value, set):
        return frozenset(value)
    parts = tuple(value.items() if isinstance(value, dict) else value)
    if set(map(type, value)) <= _HASHED and not isinstance(value, dict):
        return parts
    return tuple(part if type(part) in _HASHED else _by_identity(part) for part in parts)


def _by_identity(part: Any) -> Any:
    if type(part) is tuple:  # an item of a dictionary
        return tuple(one if type(one) in _HASHED else id(one) for one in part)
    return id(part)


def _shown(value: Any, names: frozenset[str], depth: int) -> Sequence[tuple[str, Any]] | None:
    """List the attributes of an object that count; None if it is not looked into."""
    if isinstance(value, functools.partial):
        return [("args", value.args), ("keywords", value.keywords)] if depth else None
    held = getattr(value, "__dict__", None)
    slots = names.intersection(slots_of_class(type(value)))
    if (held is None and not slots) or not depth or not names or isinstance(value, torch.Tensor):
        return None
    held = held or {}
    if slots:
        held = {**held, **{name: getattr(value, name) for name in slots if hasattr(value, name)}}
    shown = [(name, held[name]) for name in names if name in held]
    if isinstance(value, _NAMESPACES):
        shown = [(name, one) for name, one in shown if isinstance(one, (*_PLAIN, *_CONTAINERS))]
    return shown


@dataclass(frozen=True)
class _Setter:
    """Writer of a value under a key of a container, or of an object's attributes."""

    held: Any
    key: Any

    def __call__(self, value: Any) -> None:
        if isinstance(self.held, (dict, list)):
            self.held[self.key] = value
        else:
            setattr(self.held, self.key, value)


def _places(
    value: Any, names: frozenset[str], path: Path, put: Put | None, depth: int
) -> Iterator[tuple[Path, Any, Put]]:
    if isinstance(value, _PLAIN):
        if put is not None:
            yield path, value, put
    elif isinstance(value, (list, tuple, dict)):
        if not depth or len(value) > _SHORT:
            return
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for number, (key, part) in enumerate(items):
            inner = (*path, number, 1) if isinstance(value, dict) else (*path, number)
            setter = None if isinstance(value, tuple) else _Setter(value, key)
            yield from _places(part, names, inner, setter, depth - 1)
    else:
        for number, (name, part) in enumerate(_shown(value, names, depth) or ()):
            yield from _places(part, names, (*path, 1, number, 1), _Setter(value, name), depth - 1)
