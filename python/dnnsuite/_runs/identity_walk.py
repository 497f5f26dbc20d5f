# SPDX-License-Identifier: MIT
"""The walk of an identity over values and code: each gets a text that is the same in every process that has the same.

Code that changes a value as it runs (a counter, a cache) makes that value its state, and state is no part of what code
is. A method that nothing calls, as a setter that only the user's script uses, changes nothing as a run goes on.
"""

from __future__ import annotations

import collections
import contextvars
import dis
import enum
import functools
import itertools
import os
import re
import sys
import types
import weakref
from collections.abc import Iterator, Mapping, Set
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from .._code import SELF, changes_of, codes_of, content_of, imports_of, looked_up
from .._files import checksum
from .identity_kinds import (
    array_text,
    attribute,
    beginning,
    compiled_from,
    functions_of,
    generator_text,
    holds_attributes,
    is_file_installed,
    is_installed,
    is_replaced,
    is_users,
    is_users_code,
    item,
    name_of,
    operator_code,
    overrides,
    own_values,
    pickled,
    script_text,
    short,
    users_module,
    version_of,
)
from .surroundings import FOLDER_USES, compiled_operators, may_name_a_file, variables_read

if TYPE_CHECKING:
    from .identity import Identity

_PLAIN = (bool, int, float, complex, str, bytes, type(None), enum.Enum, PurePath, range, slice)
_BUILT_IN = (types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType,
             types.MethodDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
             types.MemberDescriptorType)  # fmt: skip
_ALL = frozenset(("getattr", "vars", "__dict__", "asdict", "astuple", "getmembers", "_asdict", "__getattribute__",
                  "locals"))  # code that may read any attribute  # fmt: skip
_ALL_ITEMS = frozenset(("items", "values", "keys", "copy", "**"))  # code that may read any item
_OBSERVERS = ("logging", "torch.utils.tensorboard", "tensorboard", "wandb", "mlflow", "tqdm", "rich")
_ALL_NAMES = frozenset(("globals", "eval", "exec"))  # code that may read anything in its module
_OF_A_CLASS = frozenset(("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__",
                         "__static_attributes__", "__annotations__", "__abstractmethods__", "_abc_impl",
                         "__parameters__", "__orig_bases__", "__dataclass_fields__", "__dataclass_params__",
                         "__match_args__", "__hash__", "__annotate__", "__annotate_func__"))  # fmt: skip
_OF_A_LOADER = frozenset(("num_workers", "prefetch_factor", "pin_memory", "pin_memory_device", "timeout", "generator",
                          "persistent_workers", "_iterator", "_DataLoader__multiprocessing_context",
                          "_DataLoader__initialized", "_IterableDataset_len_called"))  # fmt: skip
_OF_A_PROCESS = frozenset(("_original_object_hash",))  # of a text in transformers' configs: another in each process
_DEEP = 60
_EMPTY = object()  # in a variable that nothing is assigned to yet
_SHOWN = frozenset((*dis.hasname, *dis.hasconst, *dis.haslocal, *dis.hasfree, *dis.hascompare))


class Walk:
    """Walk over the values of one part of an identity, and over the code that they reach.

    Attributes:
        versions: versions of the installed packages that code names, by name.
    """

    def __init__(self, found: Identity, arrays: dict[int, tuple[Any, str]]) -> None:
        self._found, self._arrays = found, arrays
        self.versions: dict[str, str] = {}
        self._known: dict[int, tuple[Any, str]] = {}  # texts of what was seen, which is kept alive
        self._names: set[str] = set()  # attributes and texts in the code that was seen
        self._set: set[str] = set()  # attributes that it sets
        self._keyed: set[str] = set()  # containers that it looks items up in by keys that it computes
        self._whole: set[int] = set()  # modules of which it may read anything
        self._changed: dict[str, set[tuple[type | None, type | None, str, bool]]] = {}
        self._methods: dict[types.CodeType, tuple[type, str, bool]] = {}
        self._beginning: set[types.CodeType] = set()  # code that runs once, when an object is made
        self._parts: dict[str, str] = {}
        self._held: dict[str, Any] = {}  # objects and modules by place, of which code reads some attributes
        self._modules: dict[str, types.ModuleType] = {}  # installed ones

    def whole(self, name: str, value: Any) -> str:
        """Text of one part; places that its code reaches are noted in the identity."""
        self._parts = self._found.parts.setdefault(name, {})
        text = self.text(value, name)
        if type(value) is dict:
            self._parts.update((str(key), self.text(one, name)) for key, one in value.items())
        seen: Any = None
        while seen != (seen := (len(self._held), len(self._names), len(self._whole), len(self._keyed))):
            for place, held in list(self._held.items()):  # which attributes code reads is known once all was seen
                self._parts[place] = self._attributes(held, place)
            self._note_replaced()
        variables, files = variables_read(self._names)
        self._parts |= {f"variable {name}": repr(own) for name, own in variables.items()}
        self._found.names |= files | compiled_operators(self._names)
        self._found.uses |= FOLDER_USES & self._names
        return short(text + "".join(f"{place}={own}" for place, own in sorted(self._parts.items())), text)

    def text(self, value: Any, place: str, depth: int = 0) -> str:
        """Text of a value."""
        if isinstance(value, _PLAIN):
            if isinstance(value, (str, PurePath)) and may_name_a_file(str(value)):
                self._found.names.add(str(value))
            if type(value).__module__ == "builtins" or is_installed(type(value)):
                return short(repr(value))
        if id(value) in self._known:
            return self._known[id(value)][1]
        if depth > _DEEP:
            return self._unknown(value, place)
        self._known[id(value)] = value, "…"  # within itself
        try:
            text = self._text(value, place, depth + 1)
        except Exception:  # of the value's own code, as a `__getattr__` that fails
            text = self._unknown(value, place)
        self._known[id(value)] = value, text
        return text

    def _text(self, value: Any, place: str, depth: int) -> str:
        kind = type(value)
        if value is os.environ or value is getattr(os, "environb", None):
            self._names.add("environ")
            return "environ"
        if isinstance(value, (dict, types.MappingProxyType)) or (isinstance(value, Mapping) and is_installed(kind)):
            pairs = dict.items(value) if isinstance(value, dict) else value.items()
            inner = "{" + ", ".join(f"{self.text(k, place, depth)}: {self.text(v, item(place, k), depth)}"
                                    for k, v in pairs) + "}"  # fmt: skip
            if isinstance(value, collections.defaultdict):
                inner += f" or {self.text(value.default_factory, place, depth)}"
            return self._of_kind(value, inner, place, depth)
        if isinstance(value, (list, tuple, collections.deque)):
            inner = ", ".join(self.text(one, item(place, i), depth) for i, one in enumerate(value))
            return self._of_kind(value, f"({inner})" if isinstance(value, tuple) else f"[{inner}]", place, depth)
        if isinstance(value, Set):
            inner = ", ".join(sorted(self.text(one, place, depth) for one in value))
            return self._of_kind(value, f"{{{inner}}}", place, depth)
        if isinstance(value, types.FunctionType):
            return self._function(value, depth)
        if isinstance(value, types.MethodType):
            return short(f"{self.text(value.__func__, place, depth)} of {self.text(value.__self__, place, depth)}")
        if isinstance(value, functools.partial):
            return short("partial " + self.text([value.func, *value.args, value.keywords], place, depth))
        if isinstance(value, type):
            return self._class(value, depth)
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if isinstance(value, (property, classmethod, staticmethod, functools.cached_property)):
            return self.text([one for one, _ in functions_of(value)], place, depth)
        if isinstance(value, _PLAIN) and not isinstance(value, enum.Enum):  # of a class of the user's
            told = attribute(next(base for base in _PLAIN if isinstance(value, base)), "__repr__")(value)
            return self._of_kind(value, told, place, depth)
        if isinstance(value, _BUILT_IN):
            name, owner = (
                self._installed(attribute(value, "__module__"), value.__qualname__),
                attribute(value, "__self__"),
            )
            of_nothing = owner is None or isinstance(owner, (types.ModuleType, type))
            return name if of_nothing else short(f"{name} of {self.text(owner, place, depth)}")
        return self._object(value, place, depth)

    def _of_kind(self, value: Any, inner: str, place: str, depth: int) -> str:
        """Text of a container or number, with its class and attributes where these are the user's."""
        if is_installed(type(value)):
            return short(inner)
        return short(f"{self.text(type(value), place, depth)}{self.text(own_values(value), place, depth)}{inner}")

    # -- code ------------------------------------------------------------------------------------------------------

    def _function(self, function: types.FunctionType, depth: int) -> str:
        code, wrapped = function.__code__, compiled_from(function)
        if wrapped is not None:
            return short(
                f"compiled {self.text(wrapped, function.__qualname__, depth)}"
            )  # the rest is a compiler's state
        if is_file_installed(code.co_filename) and not is_users(function.__module__):
            closed = [value for cell in function.__closure__ or () if (value := content_of(cell, _EMPTY)) is not _EMPTY]
            name = self._installed(function.__module__, function.__qualname__)
            return name if not closed else short(f"{name} with {self.text(closed, name, depth)}")
        place = function.__qualname__.replace(".<locals>", "")
        lines, read = self._code(code)
        reached = [
            *((f"default {i}", value) for i, value in enumerate(function.__defaults__ or ())),
            *(function.__kwdefaults__ or {}).items(),
            *((name, value) for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
              if (value := content_of(cell, _EMPTY)) is not _EMPTY),
            *((name, function.__globals__[name]) for name in sorted(read) if name in function.__globals__),
            *((name, value) for name, value in vars(function).items() if not name.startswith("_")),
        ]  # fmt: skip
        for name, value in reached:
            if not self._moves(name) or callable(value) or isinstance(value, types.ModuleType):
                lines.append(f"{name}={self._reached(value, f'{place}: {name}', depth)}")
        self._follow_names(function, read, place)
        text = f"code {checksum(chr(10).join(lines))}"
        self._note(place, text, f"{code.co_filename}:{code.co_firstlineno}")
        return text

    def _follow_names(self, function: types.FunctionType, read: set[str], place: str) -> None:
        """Follow modules that a function imports when it runs, and modules of which it may read anything."""
        own = str(function.__globals__.get("__name__"))
        package = function.__globals__.get("__package__") or own.rpartition(".")[0]
        for name in sorted(imports_of(function.__code__, package)):
            try:
                module = users_module(name)
            except Exception:
                self._unknown(name, f"{place}: the module {name}, which fails as it is imported")
                continue
            if module is not None:
                self._module(module)
        for code in codes_of(function.__code__):
            names = set(code.co_names)
            if own in sys.modules and (_ALL_NAMES & names or {"sys", "modules"} <= names):
                self._module(sys.modules[own], whole=True)
            steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
            for step, after in itertools.pairwise(steps):
                held = function.__globals__.get(str(after.argval)) if step.argval == "getattr" else None
                if isinstance(held, types.ModuleType) and is_users(held.__name__):
                    self._module(held, whole=True)

    def _reached(self, value: Any, place: str, depth: int) -> str:
        """Text of a value that code names: of an object, the attributes that code reads are told apart later."""
        named = type(value) is dict and bool(value) and all(isinstance(key, str) for key in value)
        if named or holds_attributes(value):
            if id(value) not in self._known:
                self._known[id(value)] = value, name_of(type(value))
                self.text(type(value), place, depth)
                self._hold(value, place)
            return self._known[id(value)][1]
        text = self.text(value, place, depth)
        if not callable(value) and not isinstance(value, types.ModuleType):
            self._note(place, text)
        return text

    def _code(self, code: types.CodeType) -> tuple[list[str], set[str]]:
        """Return (instructions with what they name, global names that they read), of inner functions too."""
        lines, read = [], set()
        self._keyed |= looked_up(code)
        if code not in self._beginning:
            kind, name, sets = self._methods.get(code, (None, "", False))
            for change in changes_of(code):
                owner = kind if change.root == SELF else None
                self._changed.setdefault(change.name, set()).add((owner, kind, name, sets))
        for one in dis.get_instructions(code):
            name = one.opname
            if name in ("RESUME", "CACHE", "NOP", "EXTENDED_ARG", "PRECALL"):
                continue
            value = one.argval
            if isinstance(value, types.CodeType):
                inner, more = self._code(value)
                lines += inner
                read |= more
                value = value.co_name
            elif name == "KW_NAMES":
                value = code.co_consts[one.arg or 0]
            elif name == "LOAD_CONST":
                value = self.text(value, "constant")
                self._names |= set(_texts_in(one.argval))
            elif name in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME"):
                read.add(str(value))
            elif "ATTR" in name or "METHOD" in name or name == "IMPORT_FROM":
                self._names.add(str(value))
                if name == "STORE_ATTR":
                    self._set.add(str(value))
            elif name in ("DICT_MERGE", "DICT_UPDATE", "MATCH_CLASS"):
                self._names |= {"**", "__dict__"} if name == "MATCH_CLASS" else {"**"}
            lines.append(f"{name} {value if one.opcode in _SHOWN else one.arg}")
        self._names |= read
        return lines, read

    def _moves(self, name: str, holder: Any = None) -> bool:
        """True if code that was seen changes a value of this name as it runs, in an object or class `holder`."""
        kinds = () if holder is None else (holder if isinstance(holder, type) else type(holder)).__mro__
        return any(
            (owner is None or owner in kinds)
            and (kind is None or method.startswith("__") or method in (self._set if sets else self._names)
                 or method == "set_epoch" or overrides(kind, method))
            for owner, kind, method, sets in self._changed.get(name, ())
        )  # fmt: skip

    def _class(self, kind: type, depth: int) -> str:
        if is_installed(kind):
            for base in kind.__mro__[:-1]:
                for name, value in vars(base).items():
                    if isinstance(value, types.FunctionType) and is_users_code(value):
                        self._note(f"{name_of(base)}.{name}", self.text(value, name, depth))
            return self._installed(kind.__module__, kind.__qualname__)
        place = kind.__qualname__.replace(".<locals>", "")
        self._beginning |= beginning(kind)
        for name, value in vars(kind).items():
            for function, sets in functions_of(value):
                self._methods |= dict.fromkeys(codes_of(function.__code__), (kind, name, sets))
        lines = [self.text(base, place, depth) for base in kind.__bases__]
        lines += [] if is_installed(type(kind)) else [self.text(type(kind), place, depth)]
        for name, value in sorted(vars(kind).items()):
            if name not in _OF_A_CLASS and not self._moves(name, kind):
                lines.append(f"{name}={self.text(value, f'{place}.{name}', depth)}")
        return f"class {checksum(chr(10).join(lines))}"

    def _module(self, module: types.ModuleType, whole: bool = False) -> str:
        """A module of the user's stands for what code reads of it, which is followed once all code was seen."""
        if not is_users(module.__name__):
            self._modules[module.__name__] = module
            return self._installed(module.__name__, "")
        if whole:
            self._whole.add(id(module))
        if self._held.get(module.__name__) is not module:
            self._hold(module, module.__name__)
        return f"module {module.__name__}"

    def _note_replaced(self) -> None:
        """Note what a script has put into installed modules, where code names it, and numbers that it reads there."""
        modules = list(self._modules.values())
        for module in modules:  # which grows
            for name in sorted(self._names & vars(module).keys()):
                value, place = vars(module)[name], f"{module.__name__}.{name}"
                if isinstance(value, types.ModuleType):
                    if not is_users(value.__name__) and value not in modules:
                        modules.append(value)
                elif place not in self._parts and is_replaced(name, value):
                    self._parts[place] = self.text(value, place)
                elif isinstance(value, type):
                    self.text(value, place)

    def _installed(self, module: Any, name: str) -> str:
        top = str(module or "builtins").partition(".")[0]
        version = version_of(top)
        if version is not None:
            self.versions[top] = version
        return f"{module or 'builtins'}.{name}".rstrip(".")

    def _note(self, place: str, text: str, where: str = "") -> None:
        found, number = place, 1
        while self._parts.get(found, text) != text:
            number += 1
            found = f"{place} #{number}"
        self._parts[found] = text
        if where:
            self._found.where[found] = where

    # -- objects ---------------------------------------------------------------------------------------------------

    def _hold(self, value: Any, place: str) -> None:
        number, free = 1, place
        while free in self._held:
            number += 1
            free = f"{place} #{number}"
        self._held[free] = value

    def _object(self, value: Any, place: str, depth: int) -> str:
        kind = type(value)
        if (told := generator_text(value)) is not None:
            return told
        if kind.__module__.startswith(_OBSERVERS):
            return name_of(kind)
        if isinstance(value, weakref.ReferenceType):
            return self.text(value(), place, depth)
        if id(value) in self._arrays:
            return self._arrays[id(value)][1]
        if attribute(attribute(value, "dtype"), "hasobject"):
            return short(f"{list(value.shape)} {self.text(value.tolist(), place, depth)}")
        if (told := array_text(value)) is not None:
            self._arrays[id(value)] = value, told
            return told
        if holds_attributes(value):
            self.text(kind, place, depth)
            self._hold(value, place)
            return name_of(kind)
        if isinstance(wrapped := attribute(value, "__wrapped__"), types.FunctionType) and is_installed(kind):
            return short(f"{name_of(kind)} of {self.text(wrapped, place, depth)}")
        if (told := script_text(value)) is not None:
            return short(f"script {told}")
        if isinstance(value, contextvars.ContextVar):
            return short(f"{name_of(kind)} {self.text(value.get(None), place, depth)}")
        if (code := operator_code(value)) is not False:  # an operator: another one has another name
            return self._unknown(value, place) if code is None else short(f"{value} {self.text(code, place, depth)}")
        own = {} if attribute(value, "fileno") is not None else own_values(value)
        named = attribute(value, "__module__"), attribute(value, "__qualname__")
        if callable(value) and all(isinstance(name, str) for name in named) and not own:
            return self._installed(*named)  # a function of NumPy's
        if own:
            bases = {base.__name__ for base in kind.__mro__}
            left_out = _OF_A_LOADER if bases & {"DataLoader", "Sampler"} else _OF_A_PROCESS
            inner = ", ".join(
                f"{name}={self.text(part, f'{place}.{name}', depth)}"
                for name, part in own.items() if name not in left_out
            )  # fmt: skip
            return short(f"{self.text(kind, place, depth)}({inner})")
        if not any(is_installed(base) for base in kind.__mro__[:-1]):  # without attributes but what it keeps
            return self.text(kind, place, depth)
        try:
            told = pickled(value, lambda code: self.text(code, place, depth))
            return f"{self.text(kind, place, depth)} {told}"
        except Exception:
            return self._unknown(value, place)

    def _attributes(self, value: Any, place: str) -> str:
        """Text of the attributes of an object that code reads and does not change itself."""
        is_module, is_dict = isinstance(value, types.ModuleType), isinstance(value, dict)
        own = value if is_dict else vars(value) if is_module else own_values(value)
        every = id(value) in self._whole if is_module else bool(self._names & (_ALL_ITEMS if is_dict else _ALL))
        if is_dict and not every:
            last = re.findall(r"\w+", place.partition(" #")[0])[-1]
            every = last in self._keyed or not self._names.intersection(own) or any(map(callable, own.values()))
        inner = [
            f"{name}={self._reached(part, f'{place}.{name}', 1)}"
            for name, part in sorted(own.items())
            if ((every and not (is_module and name.startswith("__"))) or name in self._names or name == "__getattr__")
            and not self._moves(name, value)
        ]
        kind = "" if is_module else self.text(type(value), place)
        return short(f"{kind}({', '.join(inner)})")

    def _unknown(self, value: Any, place: str) -> str:
        told = f"{place} ({name_of(type(value))})" if not isinstance(value, str) else place
        if told not in self._found.unknown:
            self._found.unknown.append(told)
        return name_of(type(value))


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, frozenset)):
        for one in value:
            yield from _texts_in(one)
