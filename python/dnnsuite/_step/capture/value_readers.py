# SPDX-License-Identifier: MIT
"""Readers of values that code can see: their snapshots compare unequal once a value has changed."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
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
    """Reader of a value that code reaches as `where`, under a name; call it for a snapshot of the current value."""

    __slots__ = ("_name", "_scope", "_walk", "_where")

    def __init__(self, scope: Scope, where: str, name: str) -> None:
        self._scope, self._where, self._name = scope, where, name
        self._walk: Walk | None = None

    def held(self) -> Any:
        """Return the value itself."""
        raise NotImplementedError

    def put(self, value: Any) -> None:
        """Put another value in its place."""
        raise NotImplementedError

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
            guards.result(self._walked(held).same)

    def _guard_place(self, guards: Guards) -> None:
        """Guard which value is in the place."""

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


class CellReader(Reader):
    """Reader of a variable that a function closes over."""

    __slots__ = ("_cell",)

    def __init__(self, scope: Scope, cell: types.CellType, where: str, name: str) -> None:
        super().__init__(scope, where, name)
        self._cell = cell

    def _guard_place(self, guards: Guards) -> None:
        guards.cell(self._cell)

    def held(self) -> Any:
        return content_of(self._cell)

    def put(self, value: Any) -> None:
        self._cell.cell_contents = value


class NameReader(Reader):
    """Reader of a global, or of an attribute of an object."""

    __slots__ = ("_space",)

    def __init__(self, scope: Scope, space: dict[str, Any], where: str, name: str) -> None:
        super().__init__(scope, where, name)
        self._space = space

    def _guard_place(self, guards: Guards) -> None:
        guards.item(self._space, self._name)

    def held(self) -> Any:
        return self._space.get(self._name)

    def put(self, value: Any) -> None:
        self._space[self._name] = value


class FixedReader(Reader):
    """Reader of what stays in its place and changes inside: a class or a module of the user's, what a partial holds."""

    __slots__ = ("_value",)

    def __init__(self, scope: Scope, value: Any, where: str, name: str) -> None:
        super().__init__(scope, where, name)
        self._value = value

    def held(self) -> Any:
        return self._value

    def put(self, value: Any) -> None:
        """Do nothing: it stays the same one."""


class ClassReader(FixedReader):
    """Reader of the values of a class that code names, as in `self.scale` or `type(self).scale`; not of its bases."""

    __slots__ = ()

    def __init__(self, scope: Scope, kind: type) -> None:
        super().__init__(scope, kind, kind.__qualname__, "")


class DefaultsReader(Reader):
    """Reader of the defaults of a function's arguments: `__defaults__` or `__kwdefaults__`."""

    __slots__ = ("_function",)

    def __init__(self, scope: Scope, function: types.FunctionType, name: str) -> None:
        super().__init__(scope, f"the defaults of {function.__qualname__}", name)
        self._function = function

    def _guard_place(self, guards: Guards) -> None:
        guards.attribute(self._function, self._name)

    def held(self) -> Any:
        return getattr(self._function, self._name)

    def put(self, value: Any) -> None:
        setattr(self._function, self._name, value)
