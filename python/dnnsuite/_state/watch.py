# SPDX-License-Identifier: MIT
"""Attributes of which each holder has its own copy: which of them have another content than at the last look.

A step's guards ask for the same objects. Whoever copies attributes asks for equal contents: an object in the place of
an equal one is no change, a tensor that was written is one, and 1 is not 1.0.
"""

from __future__ import annotations

import functools
import io
import pickle
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import is_
from typing import Any

import torch

from .walk import PLAIN_TYPES, Path, Put, Walk, dictionary_of, handler_of, hides_state, look_at_object, mark, slots_in

_WITH_ITERATORS = ("builtins", "itertools", "collections", "_collections")  # no files, which may be closed


class _Content(Walk):
    """Walk whose snapshot equals that of an equal copy; it does not look into modules, nor at parameters and where
    a reference leads that keeps nothing alive: those of a copy are the copy's."""

    _of_its_time = False
    unsaid = False  # a part of it does not say its content: then what pickle would write of the whole counts

    def __init__(self, root: Any) -> None:
        super().__init__(root)
        self.told = self.snapshot, self.marks
        self.snapshot = pickled(root) if self.unsaid else self.told

    def same(self) -> bool:
        """Return True if nothing has changed, for all that is known."""
        return pickled(self.root) == self.snapshot if self.unsaid else super().same()

    def look(self, value: Any, label: str | None, at: Path, put: Put | None = None, named: bool = False) -> Any:
        kind: Any = type(value)
        if kind in PLAIN_TYPES:
            return super().look(value, label, at, put, named)
        if issubclass(kind, torch.nn.Module):
            return self.identity(value)
        if issubclass(kind, (weakref.ref, *weakref.ProxyTypes)):
            return kind
        if isinstance(value, torch.nn.Parameter):  # also one that is lent, of another class
            return torch.nn.Parameter
        if issubclass(kind, torch.Tensor):
            written = _Written(value, self.watch_by(functools.partial(_version, value)))
            return written, self.attributes(value, (*at, 1)) if kind is torch.Tensor and vars(value) else ()
        if _is_of_python(kind):
            return kind, self.watch_by(functools.partial(_place, value))
        return super().look(value, label, at, put, named)

    def identity(self, value: Any) -> Any:
        kind: Any = type(value)
        has_content = handler_of(kind) is look_at_object and not hides_state(kind)
        return kind if has_content and (dictionary_of(value) or slots_in(kind)) else super().identity(value)

    def of_class(self, *arguments: Any, **named: Any) -> None:
        """Look at none of the values of a class, which copies have in common."""

    def stop(self, value: Any, what: str) -> Any:
        """Compare what the walk does not look into, a table of pandas for instance, by what pickle would write."""
        found = self.watch_by(functools.partial(pickled, value))
        self.unsaid = self.unsaid or found is None
        return type(value), found


class _Written:
    """A tensor: equal to itself until it is written, and to another of the same values that was not written either."""

    __slots__ = ("tensor", "value", "version")

    def __init__(self, tensor: torch.Tensor, version: Any) -> None:
        self.tensor, self.value, self.version = tensor, _value_of(tensor), version

    def __eq__(self, other: object) -> bool:
        if type(other) is not _Written or type(self.tensor) is not type(other.tensor):
            return False
        if self.tensor is other.tensor:
            return bool(self.version == other.version)
        if any(_version(one.tensor) != one.version for one in (self, other)):
            return False
        a, b = self.value, other.value
        alike = a.layout == b.layout == torch.strided and a.dtype == b.dtype and a.shape == b.shape
        return alike and torch.equal(a, b)

    def __hash__(self) -> int:
        return 0


#: By kind of tensors that stand for others: which one.
STANDS_FOR: dict[type, Callable[[Any], torch.Tensor]] = {}


def _value_of(tensor: torch.Tensor) -> torch.Tensor:
    read = STANDS_FOR.get(type(tensor))
    return tensor if read is None else read(tensor)


def _version(tensor: torch.Tensor) -> tuple[int, int, int]:
    value = _value_of(tensor)
    address = value.data_ptr() if value.layout == torch.strided else 0
    return id(value), address, 0 if value.is_inference() else value._version


def pickled(value: Any) -> int | None:
    """Tell the content of an object of C code; None if it does not let pickle have it. Open files, and what has a name
    that all know, are the same object in a copy."""
    if isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
        return id(value)
    with suppress(Exception):
        return hash(pickle.dumps(value, 4))
    with suppress(Exception):
        return id(value) if isinstance(value.__reduce_ex__(4), str) else None
    return None


def _place(iterator: Any) -> Any:
    """Describe how far an iterator has come, and those that it takes from; None if it does not say."""
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        return tuple(map(_described, iterator.__reduce__()))
    return None


def _described(part: Any) -> Any:
    """Describe a part of an iterator's state. A list is told by its length: it may be made for this answer alone, and
    then another may have its address."""
    kind = type(part)
    if kind in PLAIN_TYPES:
        return mark(part), part
    if kind is tuple:
        return tuple(map(_described, part))
    if _is_of_python(kind):
        return kind, _place(part)
    return kind, len(part) if kind is list else _Content(part).told


def _is_of_python(kind: type) -> bool:
    return hasattr(kind, "__next__") and kind.__module__ in _WITH_ITERATORS


class Watch:
    """Attributes in `held` as they are now: those that `wanted(name, value)` chooses."""

    def __init__(self, held: Mapping[str, Any], wanted: Callable[[str, Any], bool]) -> None:
        self._wanted = wanted
        self._looks: dict[str, _Content] = {}
        self.known: dict[str, Any] = {}  # all attributes
        self.changed(held)

    def changed(self, held: Mapping[str, Any]) -> list[str]:
        """Name the attributes chosen in `held` that are new, or have another content than at the last look."""
        looks: dict[str, Any] = dict(self._looks)
        if not (list(held) == list(self.known) and all(map(is_, held.values(), self.known.values()))):
            self.known = dict(held)
            looks = {name: looks.get(name) for name, value in held.items() if self._wanted(name, value)}
        found = []
        for name, look in looks.items():
            value = held[name]
            if look is not None and look.root is value and look.same():
                continue
            looks[name] = _Content(value)
            if look is None or looks[name].snapshot != look.snapshot:
                found.append(name)
        self._looks = looks
        return found

    def unsaid(self) -> set[str]:
        """Name what may have changed, for all that is known."""
        return {name for name, look in self._looks.items() if look.snapshot is None}

    def marks(self) -> Callable[[], None]:
        """Keep what is known of the last look; return a function that brings it back."""
        known = dict(vars(self))
        return lambda: vars(self).update(known)
