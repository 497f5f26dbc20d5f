# SPDX-License-Identifier: MIT
"""Readers of values that a step's code can see, whose snapshots compare unequal once a value has changed, and the
functions that it calls by names, in the user's modules and in installed ones. A user may put another function in the
place of `torch.relu`; functions that tell a setting of torch are called for what they tell. `HeldObjects` are values in
an array's Python state that may change in place unseen by their holder: tensors that are not buffers, and all objects
but lists, dictionaries and those that keep their state in attributes."""

from __future__ import annotations

import decimal
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from ..._C import Guards
from ..._code import content_of, names_of
from ..._state import PLAIN_TYPES, Path, Put, Unknown, Walk, Watch, mark
from ..._torch import methods_of_tensors
from ...nn.array_module import ArrayModule

_told_by_themselves = (
    *(torch.are_deterministic_algorithms_enabled, torch.is_deterministic_algorithms_warn_only_enabled),
    *(torch.get_deterministic_debug_mode, torch.get_float32_matmul_precision, torch.is_anomaly_enabled),
    *(torch.is_anomaly_check_nan_enabled, torch.get_default_dtype, torch.get_default_device),
    *(torch.is_warn_always_enabled, torch.initial_seed, sys.getrecursionlimit, sys.getswitchinterval),
)
#: Functions and classes whose results depend on a setting that a user may change between two steps: what tells it.
SETTINGS: dict[Any, Callable[[], Any]] = {
    **{function: function for function in _told_by_themselves},
    **dict.fromkeys((decimal.Decimal, decimal.getcontext), lambda: repr(decimal.getcontext())),
}
_PACKAGE = __name__.partition(".")[0]
_FOLLOWED = (f"{_PACKAGE}.nn", f"{_PACKAGE}.ops", "torch.nn.")
_NO_LAYERS = frozenset((*ArrayModule.__mro__, torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict))
_NO_STEP = frozenset(("__init__", "__setstate__", "reset_parameters", "extra_repr"))


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

    __slots__ = ("_guard_place", "_name", "_scope", "_where", "held", "last_walk", "put")

    def __init__(
        self,
        scope: Scope,
        where: str,
        name: str,
        held: Callable[[], Any],
        put: Put | None,
        guard_place: Callable[[Guards], None] = lambda guards: None,
    ) -> None:
        self._scope, self._where, self._name = scope, where, name
        self.held, self.put, self._guard_place = held, put, guard_place
        self.last_walk: Walk | None = None

    def __call__(self) -> Any:
        held = self.held()
        if type(held) in PLAIN_TYPES:
            self.last_walk = None
            return held, mark(held)
        walk = self._walked(held)
        return walk.snapshot, walk.marks

    def guard(self, guards: Guards) -> None:
        """Guard what it reads, which it has read last."""
        self._guard_place(guards)
        held = self.held()
        if type(held) not in PLAIN_TYPES:
            same = self._walked(held).same
            guards.result(same if same() else object)  # another object each time: what never equals its copy is "no"

    def _walked(self, held: Any) -> Walk:
        walk = self.last_walk
        if walk is None or walk.root is not held or walk.names is not self._scope.names or not walk.same():
            walk = self.last_walk = self._scope.walk(held, self._where, self._name)
        return walk

    def walk(self) -> Walk:
        """Walk through the current value, or return the walk that tells of it already."""
        return self._walked(self.held())

    def unknown(self) -> Sequence[Unknown]:
        """List what the snapshot does not tell."""
        walk = self.last_walk
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
    return Reader(scope, where, "", lambda: value, None)


def of_attribute(scope: Scope, holder: Any, where: str, name: str) -> Reader:
    """Read an attribute that is computed, such as `torch.backends.cudnn.benchmark` or a function's defaults: these are
    a tuple, and an equal one may hold True in the place of 1."""
    read, put = partial(getattr, holder, name), partial(setattr, holder, name)
    by_identity = isinstance(holder, types.FunctionType)
    return Reader(scope, where, name, read, put, lambda guards: guards.result(read, by_identity))


def of_result(scope: Scope, function: Callable[[], Any], where: str) -> Reader:
    """Read what a function tells of settings that no name in the code leads to."""
    return Reader(scope, where, "", function, None, lambda guards: guards.result(function))


class Bindings:
    """Functions that code calls by names of globals, of classes and of modules.

    Attributes:
        installed: those in installed packages by module and name, and all that a tensor can do: equal for code that
            calls the same.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[int, str], tuple[Any, str]] = {}
        self.installed: dict[Any, Any] = {torch.Tensor: dict(methods_of_tensors)}

    def add(self, owner: Any, space: Any, name: str) -> None:
        """Remember a name in the namespace of `owner`."""
        self._places.setdefault((id(owner), name), (space, name))

    def add_installed(self, module: types.ModuleType, name: str) -> None:
        """Remember a name in a module of an installed package."""
        self.add(module, vars(module), name)
        self.installed[module.__name__, name] = vars(module)[name]

    def add_forward(self, kind: type[torch.nn.Module]) -> None:
        """Remember the forward of a layer's class, which may be an installed package's."""
        owner = next((base for base in kind.__mro__ if "forward" in vars(base)), torch.nn.Module)
        self.add(owner, vars(owner), "forward")
        self.installed[owner, "forward"] = vars(owner)["forward"]

    def guard(self, guards: Guards) -> None:
        """Guard what stands under each name, and the code of functions."""
        guards.container(methods_of_tensors, dict(methods_of_tensors))
        for space, name in self._places.values():
            guards.item(space, name)
            if isinstance(space.get(name), types.FunctionType):
                guards.attribute(space.get(name), "__code__")


@functools.lru_cache(maxsize=1024)
def functions_of_layers(kind: Any) -> tuple[tuple[types.ModuleType, str], ...]:
    """List the functions of torch, by module and name, that a layer may call, one of torch's or of an array."""
    found: dict[tuple[types.ModuleType, str], None] = {}
    waiting: list[Any] = [
        value
        for base in kind.__mro__
        if base not in _NO_LAYERS
        for name, value in vars(base).items()
        if name not in _NO_STEP
    ]
    seen: set[Any] = set()
    while waiting:
        value = waiting.pop()
        if not isinstance(value, types.FunctionType) or value in seen:
            continue
        if not str(value.__module__).startswith(_FOLLOWED):  # of code that was made it is None
            continue
        seen.add(value)
        for name in names_of(value.__code__):
            part = value.__globals__.get(name)
            if part in (torch, F):
                named = sorted(names_of(value.__code__) & vars(part).keys())
                found |= {(part, one): None for one in named if callable(vars(part)[one])}
                waiting += [vars(part)[one] for one in named]
            waiting.append(part)
    return tuple(found)


class HeldObjects:
    """Values of an array that its copies hold too, each with its counterparts in the copies.

    Args:
        values: each value of the array with its counterparts in the copies, None where there is none.
    """

    def __init__(self, values: Iterable[tuple[Any, Sequence[Any]]]) -> None:
        self._tensors: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
        self._all: list[Any] = []  # a tensor has attributes, too, and may get other memory
        self._objects: dict[str, Any] = {}  # which may hold tensors that are written
        for value, theirs in values:
            self._all.append(value)
            if isinstance(value, torch.Tensor):
                self._tensors += _followed(value, theirs)
            else:
                self._objects[str(len(self._objects))] = value
        self.keep()

    def keep(self) -> None:
        """Remember their current contents."""
        self._versions = [tensor._version for tensor, _ in self._tensors]
        self.last_walk = Walk(self._all)
        self._watch, self._others = Watch(self._objects, lambda name, value: True), False

    def changed(self) -> bool:
        """Return True if one was changed in place."""
        return [tensor._version for tensor, _ in self._tensors] != self._versions or self.other_objects()

    def other_objects(self) -> bool:
        """Return True if one has changed in more than a tensor's values: its copies must be made again."""
        if not (self._others or self.last_walk.same()):
            now = Walk(self._all)
            self._others = (now.snapshot, now.marks) != (self.last_walk.snapshot, self.last_walk.marks)
        self._others = self._others or bool(self._watch.changed(self._objects))
        return self._others

    def carry_over(self) -> None:
        """Copy the values of the array's tensors into the copies."""
        pairs = zip(self._tensors, self._versions, strict=True)
        for (tensor, copies), version in pairs:
            for copy in copies if tensor._version != version else ():
                copy.detach().copy_(tensor.detach())
        self.keep()


def _followed(tensor: torch.Tensor, theirs: Sequence[Any]) -> Iterator[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Yield a tensor and its copies, if it has some that do not share its memory and can be written."""
    if type(tensor) is not torch.Tensor or tensor.is_inference() or tensor.layout != torch.strided:
        return
    mine = tensor.untyped_storage()._cdata
    copies = [
        copy
        for copy in theirs
        if type(copy) is torch.Tensor and copy.shape == tensor.shape and copy.untyped_storage()._cdata != mine
    ]
    if copies:
        yield tensor, copies
