# SPDX-License-Identifier: MIT
"""Readers of values that code can see: their snapshots compare unequal once a value has changed."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ..._C import Guards
from ..._code import content_of
from ..._state import PLAIN, Path, Put, Unknown, Walk, mark

_PLAIN_TYPES = frozenset(PLAIN)


class Scope:
    """Names that the code of a step uses for attributes: those of all its functions, for one hands an object to
    another. `names` is None where code makes names as it runs. `own` are the ids of the modules that the step trains.
    """

    def __init__(self) -> None:
        self.names: frozenset[str] | None = frozenset()
        self.own: frozenset[int] = frozenset()

    def walk(self, value: Any, where: str = "", name: str | None = None, **options: Any) -> Walk:
        """Walk through a value that the code reaches."""
        return Walk(value, self.names, where, name, own=self.own, **options)


class Reader:
    """Reader of a value that code reaches as `where`, under a name; call it for a snapshot of the current value.

    Args:
        held: returns the value itself.
        put: puts another value in its place.
        guard_place: guards which value is in the place.
    """

    __slots__ = ("_guard_place", "_name", "_scope", "_walk", "_where", "held", "put")

    def __init__(
        self,
        scope: Scope,
        where: str,
        name: str,
        held: Callable[[], Any],
        put: Put,
        guard_place: Callable[[Guards], None] = lambda guards: None,
    ) -> None:
        self._scope, self._where, self._name = scope, where, name
        self.held, self.put, self._guard_place = held, put, guard_place
        self._walk: Walk | None = None

    def __call__(self) -> Any:
        held = self.held()
        if type(held) in _PLAIN_TYPES:
            self._walk = None
            return held, mark(held)
        walk = self._walked(held)
        return walk.snapshot, walk.marks

    def guard(self, guards: Guards) -> None:
        """Guard what it reads, which it has read last."""
        self._guard_place(guards)
        held = self.held()
        if type(held) not in _PLAIN_TYPES:
            same = self._walked(held).same
            guards.result(same if same() else object)  # another object each time: what never equals its copy is "no"

    def _walked(self, held: Any) -> Walk:
        walk = self._walk
        if walk is None or walk.root is not held or walk.names is not self._scope.names or not walk.same():
            walk = self._walk = self._scope.walk(held, self._where, self._name)
        return walk

    def walk(self) -> Walk:
        """Walk through the current value, or return the walk that tells of it already."""
        return self._walked(self.held())

    def unknown(self) -> Sequence[Unknown]:
        """List what the snapshot does not tell."""
        walk = self._walk
        return () if walk is None else walk.unknown

    def places(self) -> Iterator[tuple[Path, Any, Put]]:
        """Yield each plain value that can be replaced: its path in the snapshot, itself, and what replaces it."""
        walk = self._scope.walk(self.held(), self._where, self._name, places=True, put=self.put)
        for path, value, put in walk.places:
            yield (0, *path), value, put


def of_cell(scope: Scope, cell: types.CellType, where: str, name: str) -> Reader:
    """Read a variable that a function closes over."""
    put = partial(setattr, cell, "cell_contents")
    return Reader(scope, where, name, partial(content_of, cell), put, lambda guards: guards.cell(cell))


def of_name(scope: Scope, space: dict[str, Any], where: str, name: str) -> Reader:
    """Read a global, or an attribute of an object."""
    put = partial(space.__setitem__, name)
    return Reader(scope, where, name, partial(space.get, name), put, lambda guards: guards.item(space, name))


def of_fixed(scope: Scope, value: Any, where: str) -> Reader:
    """Read what stays in its place and changes inside: a class or a module of the user's, what a partial holds."""
    return Reader(scope, where, "", lambda: value, lambda other: None)


def of_attribute(scope: Scope, holder: Any, where: str, name: str) -> Reader:
    """Read an attribute that is computed, such as `torch.backends.cudnn.benchmark` or a function's defaults: these are
    a tuple, and an equal one may hold True in the place of 1."""
    read, put = partial(getattr, holder, name), partial(setattr, holder, name)
    by_identity = isinstance(holder, types.FunctionType)
    return Reader(scope, where, name, read, put, lambda guards: guards.result(read, by_identity))


def of_result(scope: Scope, function: Callable[[], Any], where: str) -> Reader:
    """Read what a function tells of a package's settings."""
    return Reader(scope, where, "", function, lambda other: None, lambda guards: guards.result(function))
