# SPDX-License-Identifier: MIT
"""Python values that a step's code can reach beside its arguments: closures, globals, and objects that these hold.

Functions, methods and classes of the user's are followed, by the names in their code; installed packages are not.
"""

from __future__ import annotations

import functools
import operator
import sysconfig
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .value_readers import CellReader, DefaultsReader, NameReader, NamespaceReader, Reader, cell_contents

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_CONTAINERS = (list, dict, set, tuple)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_NO_METHODS = (*_PLAIN, *_CONTAINERS, torch.Tensor, type, types.ModuleType)
_MANY = 1000  # functions that are followed
_PATHS = ("purelib", "platlib", "stdlib", "platstdlib")
_PACKAGE = Path(__file__).parents[2]
_OURS = ("_fuse", "_step", "nn", "ops", "optim", "_torch", "_under_way")
_TYPED = "<string>"  # file of what `python -c` runs, and of methods that dataclasses and named tuples write
_INSTALLED = (
    *(sysconfig.get_path(name) for name in _PATHS),
    *(str(_PACKAGE / room) for room in _OURS),
    str(Path(torch.__file__).parents[1]),  # a user's, or an environment below this one
    *(
        "<frozen",
        "<eval_with_key>",
        "<__array_function__",
    ),  # generated; code of a console has such names, too
)


class Bindings:
    """Functions that code calls by names of globals and of classes."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, str], tuple[Any, str]] = {}
        self._known: list[Any] = []

    def add(self, owner: Any, space: Any, name: str) -> None:
        """Remember what stands under a name in the namespace of `owner`."""
        if (id(owner), name) not in self._places:
            self._places[id(owner), name] = space, name
            self._known.append(space.get(name))

    def changed(self) -> bool:
        """Return True if something else stands under one of the names."""
        now = [space.get(name) for space, name in self._places.values()]
        return any(map(operator.is_not, now, self._known))


class Reach:
    """Walk through code from a function.

    `readers` read the values that it can see, `spaces` are the globals that it names things in, `bindings` the
    functions that it calls by name, `names` all names in the code. `code` is equal for equal code, and None if that
    cannot be told.
    """

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self.spaces: list[dict[str, Any]] = []
        self.bindings = Bindings()
        self.code: list[Any] | None = []
        self.names: set[str] = set()
        self._seen: set[Any] = set()
        self._named_of: dict[type, set[str]] = {}

    def call(self, function: Any) -> None:
        """Follow the Python functions that a call of `function` runs first, in any package."""
        if isinstance(function, functools.partial):
            self.call(function.func)
            for value in (*function.args, *function.keywords.values()):
                self._follow(value)
        elif isinstance(function, types.MethodType) and isinstance(function.__func__, types.FunctionType):
            self._function(function.__func__, function.__self__)
        elif isinstance(function, types.FunctionType):
            self._function(function, None)
        else:
            for name in ("forward", "__call__"):
                method = getattr(type(function), name, None)
                if isinstance(method, types.FunctionType):
                    self._function(method, function)

    def methods_of(self, kind: type) -> None:
        """Follow the methods of a class of the user's."""
        for base in kind.__mro__:
            for name, value in list(vars(base).items()) if not _installed_class(base) else ():
                found = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if isinstance(found, types.FunctionType) and found.__name__ != "__init__":
                    self.bindings.add(base, vars(base), name)
                    self._function(found, None)
                    self._class_values(base, _names(found.__code__))

    def _class_values(self, kind: type, names: frozenset[str]) -> None:
        """Read the plain values of a class that code names, as in `self.scale` or `type(self).scale`."""
        known = self._named_of.setdefault(kind, set())
        new = {name for name in _in(kind, names) if isinstance(vars(kind)[name], (*_PLAIN, *_CONTAINERS))}
        if not new <= known:
            known |= new
            self.readers.append(NamespaceReader(kind, frozenset(new)))

    def _function(self, function: types.FunctionType, owner: Any) -> None:
        key = id(function.__code__), id(owner), *map(id, function.__closure__ or ())
        if key in self._seen:
            return
        if len(self._seen) > _MANY:
            self.code = None
            return
        self._seen.add(key)
        names = _names(function.__code__)
        self.names |= names
        self._note(function, names)
        if not any(space is function.__globals__ for space in self.spaces):
            self.spaces.append(function.__globals__)
        self._defaults(function, names)
        for cell in function.__closure__ or ():
            self.readers.append(CellReader(cell, _names_in(cell_contents(cell), names)))
            self._follow(cell_contents(cell))
        for name in names:
            if name in function.__globals__:
                self._global(function.__globals__, name, names)
            if name in getattr(owner, "__dict__", ()):
                self.readers.append(NameReader(vars(owner), name, _names_in(vars(owner)[name], names)))
                self._follow(vars(owner)[name])
            method = getattr(type(owner), name, None) if owner is not None else None
            if isinstance(method, types.FunctionType) and not _installed(method):
                self._function(method, owner)

    def _note(self, function: types.FunctionType, names: frozenset[str]) -> None:
        """Note a function for `code`, with whatever it names that is not followed."""
        space = function.__globals__
        named = [(name, space[name]) for name in sorted(names) if name in space]
        if self.code is not None:
            self.code += [function.__code__, [(name, _told_apart(value)) for name, value in named]]
        for name, value in named:
            if isinstance(value, _FUNCTIONS):
                self.bindings.add(space, space, name)

    def _defaults(self, function: types.FunctionType, names: frozenset[str]) -> None:
        """Read the defaults of arguments, where they can change."""
        held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        if not all(isinstance(value, _PLAIN) for value in held):
            self.readers.append(DefaultsReader(function, names))
        elif self.code is not None:
            self.code.append([(type(value), value) for value in held])
        for value in held:
            self._follow(value)

    def _global(self, names_now: dict[str, Any], name: str, names: frozenset[str]) -> None:
        value = names_now[name]
        if isinstance(value, (types.FunctionType, type, types.ModuleType)):
            self._follow(value)
            self._inside(value, names)
            if not _has_names(value, names):
                return
        elif not isinstance(value, (*_PLAIN, *_CONTAINERS, np.ndarray)) and not hasattr(value, "__dict__"):
            return
        else:
            self._follow(value)
        self.readers.append(NameReader(names_now, name, _names_in(value, names)))

    def _inside(self, value: Any, names: frozenset[str]) -> None:
        """Follow the methods of a class of the user's, and the functions that code names in a module of the user's."""
        if isinstance(value, type) and id(value) not in self._seen:
            self._seen.add(id(value))
            self.methods_of(value)
        elif isinstance(value, types.ModuleType) and _users_module(value):
            for name in _in(value, names):
                if isinstance(vars(value)[name], (types.FunctionType, type)):
                    self.bindings.add(value, vars(value), name)
                    self._follow(vars(value)[name])
                    self._inside(vars(value)[name], names)

    def _follow(self, value: Any) -> None:
        """Follow the code of a value that is held by code."""
        if isinstance(value, types.MethodType):
            value = value.__func__
        if isinstance(value, types.FunctionType):
            if not _installed(value):
                self._function(value, None)
        elif isinstance(value, functools.partial):
            self.call(value)
        elif id(type(value)) not in self._seen and not isinstance(value, _NO_METHODS):
            self._seen.add(id(type(value)))
            self.methods_of(type(value))


def _names_in(value: Any, names: frozenset[str]) -> frozenset[str]:
    """Add to `names` those in the methods of an object's class: code that calls one reaches the attributes it uses."""
    kind: Any = type(value)
    return names if isinstance(value, _NO_METHODS) else names | _names_of_methods(kind)


@functools.lru_cache(maxsize=1024)
def _names_of_methods(kind: type) -> frozenset[str]:
    methods = (
        getattr(value, "fget", None) or getattr(value, "__func__", value)
        for base in kind.__mro__
        if not _installed_class(base)
        for name, value in vars(base).items()
        if not name.startswith("__") or name == "__call__"
    )
    return frozenset().union(
        *(_names(one.__code__) for one in methods if isinstance(one, types.FunctionType))
    )


def _told_apart(value: Any) -> Any:
    """Return what is equal for a global that leads to the same code; values that are read say for themselves."""
    if isinstance(value, types.FunctionType) and not _installed(value):
        return types.FunctionType  # followed
    if isinstance(value, (*_FUNCTIONS, types.ModuleType)):
        return value if not isinstance(value, types.ModuleType) else value.__name__
    return weakref.ref(value) if isinstance(value, type) else type(value)


def _installed(function: types.FunctionType) -> bool:
    file = function.__code__.co_filename
    if file == _TYPED:
        return function.__globals__.get("__name__") != "__main__"
    return _installed_file(file)


@functools.lru_cache(maxsize=4096)
def _installed_file(file: str) -> bool:
    parts = Path(file).parts
    return file.startswith(_INSTALLED) or "site-packages" in parts or "dist-packages" in parts


_classes: weakref.WeakKeyDictionary[type, tuple[dict[str, Any], bool]] = weakref.WeakKeyDictionary()


def _installed_class(kind: type) -> bool:
    """Return True if no method of a class is a user's; one without methods is a user's."""
    known = _classes.get(kind)
    if known is not None and _unchanged(vars(kind), known[0]):
        return known[1]
    found = _looked_at(kind)
    _classes[kind] = dict(vars(kind)), found
    return found


def _unchanged(now: Any, known: dict[str, Any]) -> bool:
    try:
        return bool(now == known)  # at the speed of C where all are the same objects
    except Exception:  # tensors and arrays have no one answer
        return False


def _looked_at(kind: type) -> bool:
    functions = (value for value in vars(kind).values() if isinstance(value, types.FunctionType))
    files = {function.__code__.co_filename for function in functions} - {_TYPED}  # dataclasses write some
    return kind is object or (bool(files) and all(map(_installed_file, files)))


def _users_module(value: types.ModuleType) -> bool:
    file = getattr(value, "__file__", None)
    return file is not None and not _installed_file(file)


def _has_names(value: Any, names: frozenset[str]) -> bool:
    """Return True if a class or a module of the user's has plain values that the code names."""
    if isinstance(value, types.FunctionType):
        return False
    if isinstance(value, type):
        return not _installed_class(value) and any(
            isinstance(vars(value).get(name), _PLAIN) for name in _in(value, names)
        )
    return _users_module(value) and bool(_in(value, names))


def _in(value: Any, names: frozenset[str]) -> list[str]:
    return sorted(names & vars(value).keys())


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> frozenset[str]:
    """Collect the names of globals and attributes in a function's code, and in functions inside it."""
    return frozenset(code.co_names).union(*map(_names, _inner(code)))


def _inner(code: types.CodeType) -> Iterator[types.CodeType]:
    return (one for one in code.co_consts if isinstance(one, types.CodeType))
