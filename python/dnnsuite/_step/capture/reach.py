# SPDX-License-Identifier: MIT
"""Python values that a step's code can reach beside its arguments: closures, globals, and objects that these hold.

Functions, methods and classes of the user's are followed, by the names in their code; installed packages are not.
"""

from __future__ import annotations

import functools
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .value_readers import CellReader, NameReader, NamespaceReader, Reader, cell_contents

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_CONTAINERS = (list, dict, set, tuple)
_NO_METHODS = (*_PLAIN, *_CONTAINERS, torch.Tensor, type, types.ModuleType)
_MANY = 400  # functions that are followed
_PATHS = ("purelib", "platlib", "stdlib", "platstdlib")
_PACKAGE = Path(__file__).parents[2]
_OURS = ("_fuse", "_step", "nn", "ops", "optim", "_torch", "_under_way")
_INSTALLED = (
    *(sysconfig.get_path(name) for name in _PATHS),
    *(str(_PACKAGE / room) for room in _OURS),
    str(Path(torch.__file__).parents[1]),  # a user's, or an environment below this one
    "<",
)


class Reach:
    """Walk through code from a function.

    `readers` read the values that it can see; `spaces` are the globals it uses.
    """

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self.spaces: list[dict[str, Any]] = []
        self._seen: set[int] = set()
        self._visited: set[tuple[int, ...]] = set()  # functions
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
            for value in vars(base).values() if not _installed_class(base) else ():
                found = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if isinstance(found, types.FunctionType) and found.__name__ != "__init__":
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
        # Two closures of one code, or a method of two objects, see values of their own.
        code = id(function.__code__), *map(id, function.__closure__ or ())
        who = code if owner is None else (*code, id(owner))
        if who in self._visited or len(self._seen) > _MANY:
            return
        self._seen.add(code[0])
        self._visited |= {code, who}
        names = _names(function.__code__)
        if not any(space is function.__globals__ for space in self.spaces):
            self.spaces.append(function.__globals__)
        for cell in function.__closure__ or ():
            self.readers.append(CellReader(cell, names))
            self._follow(cell_contents(cell))
        for name in names:
            if name in function.__globals__:
                self._global(function.__globals__, name, names)
            if name in getattr(owner, "__dict__", ()):
                self.readers.append(NameReader(vars(owner), name, names))
                self._follow(vars(owner)[name])
            method = getattr(type(owner), name, None) if owner is not None else None
            if isinstance(method, types.FunctionType) and not _installed(method.__code__):
                self._function(method, owner)

    def _global(self, names_now: dict[str, Any], name: str, names: frozenset[str]) -> None:
        value = names_now[name]
        if isinstance(value, (types.FunctionType, type, types.ModuleType)):
            self._follow(value)
            if not _has_names(value, names):
                return
        elif not isinstance(value, (*_PLAIN, *_CONTAINERS, np.ndarray)) and not hasattr(value, "__dict__"):
            return
        else:
            self._follow(value)
        self.readers.append(NameReader(names_now, name, names))

    def _follow(self, value: Any) -> None:
        """Follow the code of a value that is held by code."""
        if isinstance(value, types.MethodType):
            value = value.__func__
        if isinstance(value, types.FunctionType):
            if not _installed(value.__code__):
                self._function(value, None)
        elif isinstance(value, functools.partial):
            self.call(value)
        elif id(type(value)) not in self._seen and not isinstance(value, _NO_METHODS):
            self._seen.add(id(type(value)))
            self.methods_of(type(value))


def _installed(code: types.CodeType) -> bool:
    return _installed_file(code.co_filename)


@functools.lru_cache(maxsize=4096)
def _installed_file(file: str) -> bool:
    parts = Path(file).parts
    return file.startswith(_INSTALLED) or "site-packages" in parts or "dist-packages" in parts


def _installed_class(kind: type) -> bool:
    functions = (value for value in vars(kind).values() if isinstance(value, types.FunctionType))
    return kind is object or any(_installed(function.__code__) for function in functions)


def _has_names(value: Any, names: frozenset[str]) -> bool:
    """Return True if a class or a module of the user's has plain values that the code names."""
    if isinstance(value, types.FunctionType):
        return False
    if isinstance(value, type):
        return not _installed_class(value) and any(
            isinstance(vars(value).get(name), _PLAIN) for name in _in(value, names)
        )
    file = getattr(value, "__file__", None)
    return file is not None and not _installed_file(file) and bool(_in(value, names))


def _in(value: Any, names: frozenset[str]) -> list[str]:
    return sorted(names & vars(value).keys())


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> frozenset[str]:
    """Collect the names of globals and attributes in a function's code, and in functions inside it."""
    return frozenset(code.co_names).union(*map(_names, _inner(code)))


def _inner(code: types.CodeType) -> Iterator[types.CodeType]:
    return (one for one in code.co_consts if isinstance(one, types.CodeType))
