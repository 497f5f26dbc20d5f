# SPDX-License-Identifier: MIT
"""Python values that a step's code can reach beside its arguments: closures, globals, and objects that these hold.

Functions, methods and classes of the user's are followed, by the names in their code; installed packages are not.
"""

from __future__ import annotations

import abc
import builtins
import collections
import decimal
import functools
import itertools
import operator
import os
import sys
import sysconfig
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import torch

from ..._code import any_names, functions_in, globals_of, imports_of, names_of, texts_of
from ..._state import DESCRIPTIONS, PLAIN_TYPES, Path, Unknown, Walk, look_at_module, register
from ...nn.array_module import ArrayModule
from .value_readers import (
    SETTINGS,
    Bindings,
    Reader,
    Scope,
    functions_of_layers,
    of_attribute,
    of_cell,
    of_fixed,
    of_name,
    of_result,
)

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_CODE = (*_FUNCTIONS, property, classmethod, staticmethod, functools.cached_property, type, types.ModuleType)
_CACHED = type(functools.lru_cache(len))
_MISSING = object()
_NO_METHODS = (torch.Tensor, type, types.ModuleType)
_TEXTS = frozenset(("str", "repr", "format", "array2string", "array_str", "array_repr"))
_ASK_ENVIRONMENT = (os.getenv, os.path.expandvars, os.path.expanduser)
_VALUES = (bool, int, float, str)
_CONTAINERS = (list, dict, set, tuple, collections.deque)
_MANY = 1000  # functions that are followed
_PATHS = ("purelib", "platlib", "stdlib", "platstdlib")
_PACKAGE = FilePath(__file__).parents[2]
_OURS = ("_fuse", "_step", "adapters", "nn", "ops", "optim", "_torch", "_under_way")
_TYPED = "<string>"  # file of what `python -c` runs, and of methods that dataclasses and named tuples write
_INSTALLED = (
    *(sysconfig.get_path(name) for name in _PATHS),
    *(str(_PACKAGE / room) for room in _OURS),
    str(FilePath(torch.__file__).parents[1]),  # a user's, or an environment below this one
    *("<frozen", "<eval_with_key>", "<__array_function__"),  # generated; code of a console has such names, too
)


_NOTES = frozenset(("_plain", "_last_setting"))  # of an array's module about itself


class Reach:
    """Walk through code from a function.

    `readers` read the values that it can see, `spaces` are the globals that it names things in, `bindings` the
    functions that it calls by name, `names` all names in the code. `code` is equal for equal code, and None if that
    cannot be told. `own` are the modules of the array that is trained, whose attributes others compare.
    """

    def __init__(self, own: Iterable[torch.nn.Module] = ()) -> None:
        self.readers: list[Reader] = []
        self.spaces: list[dict[str, Any]] = []
        self.bindings = Bindings()
        self.code: list[Any] | None = [self.bindings.installed]
        self.names: set[str] = set()
        self.functions: dict[types.CodeType, types.FunctionType] = {}
        self._scope = Scope()
        self._scope.own = frozenset(map(id, own))
        self._strings: set[str] = set()
        self._any_name = False
        self._seen: set[Any] = set()
        self._read: set[Any] = set()
        self._modules: dict[int, types.ModuleType] = {}  # that the code names, one by one or through others
        self._installed: dict[type, bool] = {}  # by class, whether no method is a user's
        self._asked: dict[int, set[str]] = {}  # names by holder of settings
        self._noted: set[tuple[int, str]] = set()  # names in modules of packages
        self.caches = False  # a function keeps its results: it need not run to use a number
        self._walks: list[Walk] = []  # those that the readers had at the last look
        self._held: list[tuple[str, Callable[[], dict[str, Any]]]] = []

    def call(self, function: Any) -> None:
        """Follow the Python functions that a call of `function` runs first, in any package."""
        if isinstance(function, functools.partial):
            self.call(function.func)
            for value in (function.args, function.keywords):
                self._add(of_fixed(self._scope, value, "the arguments of a partial function"), id(value))
        elif isinstance(function, types.MethodType) and isinstance(function.__func__, types.FunctionType):
            self._function(function.__func__, function.__self__)
        elif isinstance(function, types.FunctionType):
            self._function(function, None)
        else:
            for name in ("forward", "__call__"):
                method = getattr(type(function), name, None)
                if isinstance(method, types.FunctionType):
                    self._function(method, function)
        self._settle()

    def code_of(self, modules: Iterable[tuple[type, Callable[[], dict[str, Any]]]]) -> None:
        """Follow the code of modules, given by their classes and their attributes, and of what they hold; the
        attributes are not read."""
        for kind, state in modules:
            self.methods_of(kind)
            if not all(type(value) in PLAIN_TYPES for value in state().values()):
                self._held.append((kind.__name__, state))
        self._settle()

    def _settle(self) -> None:
        """Follow what the readers meet, which may be read by further names, and look into the modules that the code
        names, for all names, until they meet nothing new."""
        known = -1
        while known != (
            known := sum(map(len, (self._seen, self._strings, self.names, self.readers, self._modules, self._noted)))
        ):
            names = None if self._any_name else frozenset(self.names | self._strings)
            if names != self._scope.names:
                self._scope.names = names
            if "environ" in self.names:
                self._add(of_fixed(self._scope, os.environ, "os.environ"), "environment")
            for module in list(self._modules.values()):
                self._look_into(module)
            for reader in self.readers[:]:
                if type(reader.held()) not in PLAIN_TYPES:  # which hold no code
                    self._follow_all(reader.walk().code)
            for _, _, value in self._values_of_modules():
                self._follow_all(self._scope.walk(value).code)
                if isinstance(value, decimal.Decimal):
                    self._setting(decimal.Decimal, "decimals")

    def outgrown(self) -> bool:
        """Return True if a reader meets code that has come since it was followed."""
        before, self._walks = self._walks, [walk for reader in self.readers if (walk := reader.last_walk) is not None]
        known = set(map(id, before))
        return any(self._is_new(value) for walk in self._walks if id(walk) not in known for value in walk.code)

    def _is_new(self, value: Any) -> bool:
        if isinstance(value, types.MethodType):
            value = value.__func__
        if isinstance(value, types.FunctionType):
            code, cells = value.__code__, value.__closure__  # the owner may be another one
            followed = _key(value, None) in self._seen or (code in self.functions and not cells)
            return not (followed or code.co_name == "__init__" or _installed(value))
        return isinstance(value, type) and id(value) not in self._seen

    def unknown_in_modules(self) -> Iterator[Unknown]:
        """Yield what cannot be compared among the attributes of the modules."""
        for where, name, value in self._values_of_modules():
            yield from self._scope.walk(value, f"{where}.{name}", name).unknown

    def _values_of_modules(self) -> Iterator[tuple[str, str, Any]]:
        """Yield class, name and value of the attributes that are not plain, each value once: modules share many."""
        seen = set()
        for where, state in self._held:
            for name, value in state().items():
                if type(value) not in PLAIN_TYPES and id(value) not in seen:
                    seen.add(id(value))
                    yield where, name, value

    def _settings(self, holder: Any, where: str) -> None:
        """Read the settings in torch's backends that code names: they are no items of a module's dictionary."""
        asked = self._asked.setdefault(id(holder), set())
        new = self.names - asked - getattr(holder, "__dict__", {}).keys()  # of None and dicts, too
        asked |= new
        for name in sorted(new):
            if isinstance(getattr(holder, name, None), _VALUES):
                self._add(of_attribute(self._scope, holder, f"{where}.{name}", name), id(holder), name)

    def _follow_all(self, found: Iterable[Any]) -> None:
        for value in found:
            if id(value) not in self._seen:
                self._follow(value)

    def _add(self, reader: Reader, *key: Any) -> None:
        if key not in self._read:
            self._read.add(key)
            self.readers.append(reader)

    def methods_of(self, kind: Any) -> None:
        """Follow the methods of a class of the user's, and read its values."""
        users = [base for base in kind.__mro__ if not self._installed_class(base)]
        if issubclass(kind, torch.nn.Module):
            self.bindings.add_forward(kind)
            layers = [kind]
            if issubclass(kind, ArrayModule) and isinstance(vars(kind).get("torch_class"), type):
                self.bindings.add_forward(kind.torch_class)
                layers.append(kind.torch_class)
            for module, name in itertools.chain.from_iterable(map(functions_of_layers, layers)):
                self._of_package(module, name)
        if type(kind) is abc.ABCMeta and users:  # `register` makes others its subclasses
            self._add(of_result(self._scope, lambda: f"{abc.get_cache_token()}", kind.__qualname__), "subclasses")
        for base in users:
            for name, value in list(vars(base).items()):
                for found in functions_in(value):
                    if found.__name__ != "__init__":
                        self.bindings.add(base, vars(base), name)
                        self._function(found, None)
        held = (value for base in users for name, value in vars(base).items() if not name.startswith("__"))
        if not all(isinstance(value, _CODE) for value in held):
            self._add(of_fixed(self._scope, users[0], users[0].__qualname__), id(users[0]))

    def _function(self, function: types.FunctionType, owner: Any) -> None:
        key = _key(function, owner)
        if key in self._seen:
            return
        if len(self._seen) > _MANY:
            self.code = None
            return
        self._seen.add(key)
        names = names_of(function.__code__)
        self.names |= names
        self._strings |= texts_of(function.__code__)
        self._any_name = self._any_name or bool(any_names(function.__code__))
        self.functions.setdefault(function.__code__, function)
        self._note(function, names)
        if not any(space is function.__globals__ for space in self.spaces):
            self.spaces.append(function.__globals__)
        self._defaults(function)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._add(of_cell(self._scope, cell, f"{name} of {function.__qualname__}", name), id(cell))
        package = function.__globals__.get("__package__") or ""
        for name in sorted(imports_of(function.__code__, package)):
            self._inside(sys.modules.get(name))
        looked_up = globals_of(function.__code__)
        for name in sorted(names):
            if name in function.__globals__:
                self._global(function.__globals__, name)
            elif name in looked_up and not _is_pythons(vars(builtins).get(name, _MISSING)):
                space = vars(builtins) if name in vars(builtins) else function.__globals__  # where it may come later
                self._add(of_name(self._scope, space, f"the global {name}", name), id(space), name)
            if name in getattr(owner, "__dict__", ()):
                where = f"{type(owner).__name__}.{name}"
                self._add(of_name(self._scope, vars(owner), where, name), id(vars(owner)), name)
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

    def _defaults(self, function: types.FunctionType) -> None:
        """Read the defaults of arguments."""
        for name in ("__defaults__", "__kwdefaults__"):
            if getattr(function, name):
                where = f"the defaults of {function.__qualname__}"
                self._add(of_attribute(self._scope, function, where, name), id(function), name)

    def _global(self, space: dict[str, Any], name: str) -> None:
        value = space[name]
        self._setting(value, name)
        if isinstance(value, (types.FunctionType, type, types.ModuleType)):
            self._follow(value)
            self._inside(value)
        if isinstance(value, type) and not issubclass(value, (*_NO_METHODS, torch.nn.Module)):
            self._follow(value.__init__)  # the step may make objects of it
        if self._holds_values(value):
            self._add(of_name(self._scope, space, f"the global {name}", name), id(space), name)

    def _inside(self, value: Any) -> None:
        """Look into a module, if it is one, for the names in the code: those now and those that come later."""
        if isinstance(value, types.ModuleType):
            self._modules.setdefault(id(value), value)

    def _look_into(self, module: types.ModuleType) -> None:
        """Follow the functions that code names in a module of the user's; note those in one of a package."""
        users, names = _users_module(module), self.names
        if users:
            names = names | self._strings
        if module is np and names & vars(module).keys():
            self._add(of_result(self._scope, lambda: repr(np.geterr()), "NumPy's errors"), "geterr")
            if not _TEXTS.isdisjoint(names):
                self._add(of_result(self._scope, lambda: repr(np.get_printoptions()), "NumPy's texts"), "texts")
        answers = vars(module).get("__getattr__")
        if users and isinstance(answers, types.FunctionType):
            self._function(answers, None)
        if users and self._any_name:
            names |= {name for name, held in vars(module).items() if name[:2] != "__" and not isinstance(held, _CODE)}
        if module.__name__.startswith(torch.backends.__name__):
            self._settings(module, module.__name__)
        for name in sorted(names & vars(module).keys()):
            part = vars(module)[name]
            if isinstance(part, types.ModuleType):
                self.bindings.add(module, vars(module), name)
                self._inside(part)
            elif not users:
                self._of_package(module, name)
            elif isinstance(part, (types.FunctionType, type)):
                self.bindings.add(module, vars(module), name)
                self._follow(part)
            else:
                where = f"{module.__name__}.{name}"
                self._add(of_name(self._scope, vars(module), where, name), id(vars(module)), name)

    def _of_package(self, module: types.ModuleType, name: str) -> None:
        """Note what code finds under a name in a module of an installed package, which a user may replace: a function
        of the user's is followed, a number is read like others."""
        if (id(module), name) in self._noted:
            return
        value = vars(module)[name]
        held = isinstance(value, _CONTAINERS) and name[:2] != "__" and value is not sys.modules
        is_value = isinstance(value, _VALUES) or (held and module.__name__.partition(".")[0] != torch.__name__)
        if not is_value and not callable(value):
            if module.__name__.startswith(torch.backends.__name__):
                self._settings(value, f"{module.__name__}.{name}")
            return
        self._noted.add((id(module), name))
        if is_value:
            self._add(of_name(self._scope, vars(module), f"{module.__name__}.{name}", name), id(vars(module)), name)
        else:
            self.bindings.add_installed(module, name)
            self._setting(value, name)
            if isinstance(value, types.FunctionType):
                self._follow(value)

    def _setting(self, value: Any, name: str) -> None:
        """Read the setting that what the code names depends on, if it is one that does."""
        if not isinstance(value, (*_FUNCTIONS, type)):
            return
        if value in _ASK_ENVIRONMENT:
            self.names.add("environ")
        elif value is warnings.warn:
            self._of_package(warnings, "filters")
        elif value in SETTINGS:
            self._add(of_result(self._scope, SETTINGS[value], name), id(SETTINGS[value]))

    def _follow(self, value: Any) -> None:
        """Follow the code of a value that is held by code."""
        if isinstance(value, (operator.attrgetter, operator.methodcaller)):
            self._strings.update(part for text in value.__reduce__()[1] for part in str(text).split("."))
        if isinstance(value, _CACHED):
            self.caches = True
            value = value.__wrapped__
        if isinstance(value, types.MethodType):
            value = value.__func__
        if isinstance(value, types.FunctionType):
            if not _installed(value):
                self._function(value, None)
        elif isinstance(value, types.ModuleType):
            self._inside(value)
        elif isinstance(value, type) and id(value) not in self._seen:
            self._seen.add(id(value))
            if not issubclass(value, _NO_METHODS):
                self.methods_of(value)
            if type(value) is not type:  # a metaclass has code, too
                self.methods_of(type(value))

    def _holds_values(self, value: Any) -> bool:
        """Return True for a global that code may read a value of: a function has attributes, too."""
        if isinstance(value, types.FunctionType):  # a decorator of a package may have wrapped it
            file = getattr(sys.modules.get(value.__module__), "__file__", None)
            read = bool(vars(value)) or not self.names.isdisjoint(DESCRIPTIONS)
            return read and not (_installed(value) and file is not None and is_installed(file))
        if isinstance(value, type):
            return not self._installed_class(value)
        return not isinstance(value, (types.BuiltinFunctionType, types.ModuleType))

    def _installed_class(self, kind: type) -> bool:
        """Return True if no method of a class is a user's; one without methods is a user's."""
        if kind not in self._installed:
            methods = [value for value in vars(kind).values() if isinstance(value, types.FunctionType)]
            functions = [list(functions_in(method))[-1] for method in methods]  # what decorators wrap
            files = {function.__code__.co_filename for function in functions} - {_TYPED}  # dataclasses write some
            home = getattr(sys.modules.get(kind.__module__), "__file__", None)  # of an enum all methods are Python's
            users = home is not None and not is_installed(home)
            self._installed[kind] = kind is object or (bool(files) and not users and all(map(is_installed, files)))
        return self._installed[kind]


def _key(function: types.FunctionType, owner: Any) -> tuple[int, ...]:
    return id(function.__code__), id(owner), *map(id, function.__closure__ or ())


def _is_pythons(value: Any) -> bool:
    """Return True for what Python itself has put among the built-in names."""
    return getattr(value, "__module__", "builtins") in ("builtins", "io", "_sitebuiltins") and callable(value)


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
    return is_installed(file)


@functools.lru_cache(maxsize=4096)
def is_installed(file: str) -> bool:
    parts = FilePath(file).parts
    return file.startswith(_INSTALLED) or "site-packages" in parts or "dist-packages" in parts


def _users_module(value: types.ModuleType) -> bool:
    package = value.__name__.partition(".")[0]
    # What code makes says no file, or none that is one: configurations, `torch.ops.aten`. Its package says whose it is.
    for file in (getattr(sys.modules.get(package), "__file__", None), getattr(value, "__file__", None)):
        if isinstance(file, str) and is_installed(file):
            return False
    return getattr(value, "__file__", None) is not None or package not in sys.stdlib_module_names


def _look_at_module(walk: Walk, value: torch.nn.Module, at: Path) -> Any:
    """Look at a module: at what code and the user's hands may change in it, of an array not at what that notes itself.

    What the modules of the array hold that is trained is compared with their copies in the shards.
    """
    held = vars(value)
    if not isinstance(value, ArrayModule) and "_root" not in held and "_fused_B" not in held:
        return look_at_module(walk, value, at)
    if walk.own is None or id(value) in walk.own:
        return walk.identity(value)
    walk.code.append(type(value))
    walk.watch(held, dict(held))
    found: list[Any] = [walk.watch_by(functools.partial(_settings, value))]
    for name, part in held.items():
        if name not in _NOTES and not name.startswith("_fused_"):
            found.append((name, walk.look(part, f".{name}", (*at, 1, len(found), 1))))
    return walk.identity(value), tuple(found)


def _settings(module: Any) -> Any:
    """Collect what decides how a module of an array runs, beside its attributes: why its models run one by one, what
    its layer says, and what an assignment to `.data` and `requires_grad_` change."""
    report = vars(module).get("_fused_report")
    said = module.recorded_values() if isinstance(module, ArrayModule) else ()
    tensors = [t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None]
    of_tensors = tuple((t.requires_grad, t.data_ptr() if t.is_cuda else 0) for t in tensors)
    return report and report.reason, repr(said), of_tensors


register(torch.nn.Module, _look_at_module)
