# SPDX-License-Identifier: MIT
"""Identity of a run: texts of the values, data and code that decide its numbers, which two processes can compare.

Files that code or values name count by their content, and variables of the environment by their values.
Code counts by what it does: its instructions, constants and names, and those of the user's functions and classes that
it calls, with the globals and attributes that they read; not by its file, its lines or its comments. Installed packages
count by their versions. What code itself changes as it runs (a counter, a list that it appends to, a random generator)
is its state and no part of what it is. What cannot be compared is named in `unknown`.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import inspect
import pickle
import platform
import re
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from .._code import changed_names, codes_of, content_of
from .._files import checksum
from ..errors import InvalidArgument, did_you_mean
from .surroundings import changed_files, files_named, may_name_a_file, settings_of_torch, variables_read

_PATCHES = "patches"  # what a script has put into torch
_SETTINGS = "torch_settings"
FILES = "files"  # that are named
_INSTALLED = tuple(
    {
        *(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")),
        str(Path(__file__).parents[1]),
    }
)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), enum.Enum, PurePath, range, slice)
_GENERATORS = ("Generator", "RandomState", "Random", "SystemRandom", "BitGenerator", "PCG64", "Lock", "RLock")
_BEGIN = frozenset(("__init__", "__post_init__", "__setstate__", "__new__", "__set_name__", "__init_subclass__"))
_ALL = frozenset(("getattr", "vars", "__dict__", "asdict", "locals"))  # code that may read any attribute
_ALL_ITEMS = frozenset(("items", "values", "keys", "copy", "**"))  # code that may read any item
_OF_A_CLASS = frozenset(("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__",
                         "__static_attributes__", "__annotations__", "__abstractmethods__", "_abc_impl",
                         "__parameters__", "__orig_bases__", "__dataclass_fields__", "__dataclass_params__",
                         "__match_args__", "__hash__", "__annotate__", "__annotate_func__"))  # fmt: skip
_OF_A_LOADER = frozenset(("num_workers", "prefetch_factor", "pin_memory", "pin_memory_device", "timeout", "generator",
                          "persistent_workers", "_iterator", "_DataLoader__multiprocessing_context",
                          "_DataLoader__initialized", "_IterableDataset_len_called"))  # fmt: skip
_OF_A_PROCESS = frozenset(("_original_object_hash",))  # of a text in transformers' configs: another in each process
_SHORT = 60  # characters of a text that is shown as it is
_DEEP = 60
_EMPTY = object()  # in a variable that nothing is assigned to yet


@dataclass
class Identity:
    """Texts of what decides a run's numbers.

    Attributes:
        texts: a text for each part, by name.
        parts: texts of the functions, classes and values that code of a part reaches, by name of the part and place.
        where: file and line of code, by place; of this process only.
        unknown: values that could not be compared.
        names: texts that may name files.
    """

    texts: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, str]] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    @functools.cached_property
    def files(self) -> dict[str, str]:
        """Size and hash of the files that are named, by name."""
        return files_named(self.names)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a file keeps them."""
        return {"texts": self.texts, "parts": self.parts, "unknown": self.unknown, FILES: self.files}

    def changes(self, then: Mapping[str, Any]) -> dict[str, str]:
        """Return what differs from `then`, which :meth:`to_dict` made: a sentence for each part, by its name."""
        names = dict.fromkeys([*then["texts"], *self.texts])
        told = {name: self._told(name, then) for name in names if then["texts"].get(name) != self.texts.get(name)}
        odd = changed_files(then.get(FILES, {}), self.files)
        return told | (
            {FILES: f"{FILES}: other content in {', '.join(odd[:3])}{', …' * (len(odd) > 3)}"} if odd else {}
        )

    def _told(self, name: str, then: Mapping[str, Any]) -> str:
        if name not in then["texts"] or name not in self.texts:
            gone = name in then["texts"]
            parts = (then["parts"] if gone else self.parts).get(name, {}) if name in (_PATCHES, _SETTINGS) else {}
            places = ", ".join(list(parts)[:3])
            return f"{name}{f' ({places})' if places else ''} is {'gone' if gone else 'new'}"
        before, now = then["parts"].get(name, {}), self.parts.get(name, {})
        odd = [place for place in dict.fromkeys([*before, *now]) if before.get(place) != now.get(place)]
        if not odd:
            return f"{name} is {self.texts.get(name)}, was {then['texts'].get(name)}"
        told = [self._place(place, before.get(place), now.get(place)) for place in odd[:3]]
        return f"{name}: {', '.join(told)}{', …' if odd[3:] else ''}"

    def _place(self, place: str, before: str | None, now: str | None) -> str:
        where = f" ({self.where[place]})" if place in self.where else ""
        if before is None or now is None:
            return f"{place}{where} is {'new' if before is None else 'gone'}"
        if before.startswith("code "):
            return f"{place}{where} has other code or reads other values"
        return f"{place}{where} is {now}, was {before}"


def identity_of(
    given: Mapping[str, Any], plain: Mapping[str, str] | None = None, arrays: dict[int, tuple[Any, str]] | None = None
) -> Identity:
    """Return the identity of a run.

    Args:
        given: values that decide its numbers, by the names that its user knows them by.
        plain: further parts, as texts.
        arrays: texts of arrays that are known already; those that are met are put in, for another call.
    """
    found = Identity(texts=dict(plain or {}))
    versions, known = {"python": platform.python_version()}, {} if arrays is None else arrays
    for name, value in given.items():  # each by itself: what one reaches is no part of another
        walk = _Walk(found, known)
        found.texts[name] = walk.whole(name, value)
        versions |= walk.versions
    if "torch" in versions:
        for name, more in ((_PATCHES, _patches()), (_SETTINGS, settings_of_torch())):
            if more:
                found.texts[name] = _Walk(found, known).whole(name, more)
    found.texts["versions"] = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return found


def cannot_tell(unknown: Sequence[str]) -> str:
    """Say that some values cannot be compared."""
    return f"a resumed run cannot compare these: {', '.join(unknown)}"


def check_same(
    where: Path, then: Mapping[str, Any] | None, now: Identity, allowed: Sequence[str] | None = (), of: str = ""
) -> dict[str, str]:
    """Refuse to continue a run of another identity; return what differs and was allowed to.

    Args:
        where: directory or file of the run.
        then: its identity, from :meth:`Identity.to_dict`; None where an earlier version noted none.
        allowed: names of parts that may differ; None where no mixture makes sense.
        of: owner of the parts, for the message.

    Raises:
        InvalidArgument: another part differs, which is named with its place, a name is of no part, or nothing is known.
    """
    if then is None or "texts" not in then:
        raise InvalidArgument(f"--resume: {where} does not say what decided its numbers{of}; choose another --out")
    for name in allowed or ():
        if name not in {*now.texts, *then["texts"], FILES}:
            raise InvalidArgument(
                f"--allow-changed {name}: no such part{did_you_mean(name, now.texts)}; available: "
                f"{', '.join(now.texts)}"
            )
    changes = now.changes(then)
    names = [name for name in changes if name not in (allowed or ())]
    if names:
        take = f", or take the change with {' '.join(f'--allow-changed {name}' for name in names)}"
        told = "; ".join(changes[name] for name in names)
        raise InvalidArgument(
            f"--resume: {where} was made with other settings{of}: {told}; give the same"
            f"{' or' if allowed is None else ','} choose another --out{'' if allowed is None else take}"
        )
    return changes


class _Walk:
    """Walk over values, which gives each a text that is the same in every process where the value is."""

    def __init__(self, found: Identity, arrays: dict[int, tuple[Any, str]]) -> None:
        self._found, self._arrays = found, arrays
        self.versions: dict[str, str] = {}
        self._known: dict[int, tuple[Any, str]] = {}  # texts of what was seen, which is kept alive
        self._names: set[str] = set()  # attributes and texts in the code that was seen
        self._state: set[str] = set()  # names that code changes as it runs
        self._beginning: set[types.CodeType] = set()  # code that runs once, when an object is made
        self._parts: dict[str, str] = {}
        self._later: list[tuple[Any, str]] = []

    def whole(self, name: str, value: Any) -> str:
        """Text of one part; places that its code reaches are noted in the identity."""
        self._parts = self._found.parts.setdefault(name, {})
        text = self.text(value, name)
        if type(value) is dict:
            self._parts.update((str(key), self.text(one, name)) for key, one in value.items())
        while self._later:  # objects that code reads attributes of: which ones is known once all code was seen
            waiting, self._later = self._later, []
            for held, place in waiting:
                self._parts[place] = self._attributes(held, place)
        self._parts |= {f"variable {name}": repr(own) for name, own in variables_read(self._names).items()}
        return _short(text + "".join(f"{place}={own}" for place, own in sorted(self._parts.items())), text)

    def text(self, value: Any, place: str, depth: int = 0) -> str:
        """Text of a value."""
        if isinstance(value, _PLAIN):
            if isinstance(value, (str, PurePath)) and may_name_a_file(str(value)):
                self._found.names.add(str(value))
            return _short(repr(value))
        if id(value) in self._known:
            return self._known[id(value)][1]
        if depth > _DEEP:
            return self._unknown(value, place)
        self._known[id(value)] = value, "…"  # within itself
        text = self._text(value, place, depth + 1)
        self._known[id(value)] = value, text
        return text

    def _text(self, value: Any, place: str, depth: int) -> str:
        kind = type(value)
        if isinstance(value, Mapping) and (kind is dict or _is_installed(kind)):
            return _short("{" + ", ".join(f"{self.text(k, place, depth)}: {self.text(v, _at(place, k), depth)}"
                                          for k, v in value.items()) + "}")  # fmt: skip
        if isinstance(value, (list, tuple)):
            inner = ", ".join(self.text(one, _at(place, i), depth) for i, one in enumerate(value))
            return _short(f"{'[' if isinstance(value, list) else '('}{inner}{']' if isinstance(value, list) else ')'}")
        if isinstance(value, Set):
            return _short("{" + ", ".join(sorted(self.text(one, place, depth) for one in value)) + "}")
        if isinstance(value, types.FunctionType):
            return self._function(value, depth)
        if isinstance(value, types.MethodType):
            return _short(f"{self.text(value.__func__, place, depth)} of {self.text(value.__self__, place, depth)}")
        if isinstance(value, functools.partial):
            return _short("partial " + self.text([value.func, *value.args, value.keywords], place, depth))
        if isinstance(value, type):
            return self._class(value, depth)
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if isinstance(value, (property, classmethod, staticmethod, functools.cached_property)):
            functions = [getattr(value, name, None) for name in ("fget", "fset", "__func__", "func")]
            return self.text([one for one in functions if one is not None], place, depth)
        if hasattr(value, "__module__") and hasattr(value, "__qualname__") and callable(value):  # built in
            return self._installed(value.__module__ or "builtins", value.__qualname__)
        return self._object(value, place, depth)

    # -- code ------------------------------------------------------------------------------------------------------

    def _function(self, function: types.FunctionType, depth: int) -> str:
        code = function.__code__
        if _is_file_installed(code.co_filename) and not _is_users(function.__module__):
            closed = [value for cell in function.__closure__ or () if (value := content_of(cell, _EMPTY)) is not _EMPTY]
            name = self._installed(function.__module__, function.__qualname__)
            return name if not closed else _short(f"{name} with {self.text(closed, name, depth)}")
        place = function.__qualname__.replace(".<locals>", "")
        lines, read = self._code(code)
        reached = [
            *((f"default {i}", value) for i, value in enumerate(function.__defaults__ or ())),
            *(function.__kwdefaults__ or {}).items(),
            *((name, value) for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
              if (value := content_of(cell, _EMPTY)) is not _EMPTY),
            *((name, function.__globals__[name]) for name in sorted(read) if name in function.__globals__),
        ]  # fmt: skip
        for name, value in reached:
            if name not in self._state or callable(value) or isinstance(value, types.ModuleType):
                lines.append(f"{name}={self._reached(value, f'{place}: {name}', depth)}")
        text = f"code {checksum(chr(10).join(lines))}"
        self._note(place, text, f"{code.co_filename}:{code.co_firstlineno}")
        return text

    def _reached(self, value: Any, place: str, depth: int) -> str:
        """Text of a value that code names: of an object, the attributes that code reads are told apart later."""
        named = type(value) is dict and bool(value) and all(isinstance(key, str) for key in value)
        if named or _holds_attributes(value):
            if id(value) not in self._known:
                self._known[id(value)] = value, _name_of(type(value))
                self.text(type(value), place, depth)
                self._later.append((value, place))
            return self._known[id(value)][1]
        text = self.text(value, place, depth)
        if not callable(value) and not isinstance(value, types.ModuleType):
            self._note(place, text)
        return text

    def _code(self, code: types.CodeType) -> tuple[list[str], set[str]]:
        """Return (instructions with what they name, global names that they read), of inner functions too."""
        lines, read = [], set()
        if code not in self._beginning:
            self._state |= changed_names(code)
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
            elif name == "LOAD_CONST":
                value = self.text(value, "constant")
                if isinstance(one.argval, str):
                    self._names.add(one.argval)
            elif name in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME"):
                read.add(str(value))
            elif "ATTR" in name or "METHOD" in name:
                self._names.add(str(value))
            elif name in ("DICT_MERGE", "DICT_UPDATE"):
                self._names.add("**")
            lines.append(f"{name} {value if one.opcode in _SHOWN else one.arg}")
        self._names |= read
        return lines, read

    def _class(self, kind: type, depth: int) -> str:
        if _is_installed(kind):
            return self._installed(kind.__module__, kind.__qualname__)
        place = kind.__qualname__.replace(".<locals>", "")
        self._beginning |= _beginning(kind)
        lines = [self.text(base, place, depth) for base in kind.__bases__]
        for name, value in sorted(vars(kind).items()):
            if name not in _OF_A_CLASS and name not in self._state:
                lines.append(f"{name}={self.text(value, f'{place}.{name}', depth)}")
        return f"class {checksum(chr(10).join(lines))}"

    def _module(self, module: types.ModuleType) -> str:
        """A module of the user's stands for what code reads of it, which is followed once all code was seen."""
        if not _is_users(module.__name__):
            return self._installed(module.__name__, "")
        self._later.append((module, module.__name__))
        return f"module {module.__name__}"

    def _installed(self, module: str, name: str) -> str:
        top = module.partition(".")[0]
        version = getattr(sys.modules.get(top), "__version__", None)
        if isinstance(version, str):
            self.versions[top] = version
        return f"{module}.{name}".rstrip(".")

    def _note(self, place: str, text: str, where: str = "") -> None:
        found, number = place, 1
        while self._parts.get(found, text) != text:
            number += 1
            found = f"{place} #{number}"
        self._parts[found] = text
        if where:
            self._found.where[found] = where

    # -- objects ---------------------------------------------------------------------------------------------------

    def _object(self, value: Any, place: str, depth: int) -> str:
        kind = type(value)
        if kind.__name__ in _GENERATORS:
            return kind.__name__  # its state moves
        if id(value) in self._arrays:
            return self._arrays[id(value)][1]
        if (told := _array_text(value)) is not None:
            self._arrays[id(value)] = value, told
            return told
        if _holds_attributes(value):
            self.text(kind, place, depth)
            self._later.append((value, place))
            return _name_of(kind)
        own = {} if hasattr(value, "fileno") else _own_values(value)
        if own:
            left_out = _OF_A_LOADER if any(base.__name__ == "DataLoader" for base in kind.__mro__) else _OF_A_PROCESS
            inner = ", ".join(
                f"{name}={self.text(part, f'{place}.{name}', depth)}"
                for name, part in own.items() if name not in left_out
            )  # fmt: skip
            return _short(f"{self.text(kind, place, depth)}({inner})")
        try:
            return f"{self.text(kind, place, depth)} {checksum(pickle.dumps(value, 4))}"
        except Exception:
            return self._unknown(value, place)

    def _attributes(self, value: Any, place: str) -> str:
        """Text of the attributes of an object that code reads and does not change itself."""
        is_module, is_dict = isinstance(value, types.ModuleType), isinstance(value, dict)
        own = value if is_dict else vars(value) if is_module else _own_values(value)
        every = not is_module and bool(self._names & (_ALL_ITEMS if is_dict else _ALL))
        every = every or (is_dict and not self._names.intersection(own))
        inner = [
            f"{name}={self._reached(part, f'{place}.{name}', 1)}"
            for name, part in sorted(own.items())
            if (every or name in self._names) and name not in self._state
        ]
        kind = "" if is_module else self.text(type(value), place)
        return _short(f"{kind}({', '.join(inner)})")

    def _unknown(self, value: Any, place: str) -> str:
        told = f"{place} ({_name_of(type(value))})"
        if told not in self._found.unknown:
            self._found.unknown.append(told)
        return _name_of(type(value))


_SHOWN = frozenset((*dis.hasname, *dis.hasconst, *dis.haslocal, *dis.hasfree, *dis.hascompare))


def _short(text: str, shown: str | None = None) -> str:
    """Return a short text as it is, of a long one a hash; `shown` is what is shown of the text, if that is short."""
    shown = text if shown is None else shown
    if shown == text and len(text) <= _SHORT:
        return text
    kind = shown.partition(" ")[0] if shown.startswith(("code ", "class ")) else f"{shown[:20]}…"
    return f"{kind} {checksum(text)}"


def _at(place: str, key: Any) -> str:
    return f"{place}[{key!r}]" if isinstance(key, (str, int)) else place


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _beginning(kind: type) -> set[types.CodeType]:
    """Code of a class that runs when an object is made, and of methods that no other code of the class calls."""
    methods = {name: code for base in reversed(kind.__mro__) for name, value in vars(base).items()
               if isinstance(code := getattr(value, "__code__", None), types.CodeType)}  # fmt: skip
    begun = methods.keys() & _BEGIN
    while True:
        called = {one for name in begun for code in codes_of(methods[name]) for one in code.co_names}
        later = {one for name in methods.keys() - begun for code in codes_of(methods[name]) for one in code.co_names}
        more = (methods.keys() & called) - later - begun
        if not more:
            return {code for name in begun for code in codes_of(methods[name])}
        begun |= more


def _patches() -> dict[str, Any]:
    """Functions that a script has put into torch in place of torch's own, by their names there.

    Layers call them as well, so that it does not matter whether the code that was seen names them.
    """
    torch: Any = sys.modules["torch"]
    kinds = [kind for _, kind in inspect.getmembers(torch.nn, inspect.isclass)]
    return {
        f"{holder.__name__}.{name}": value
        for holder in (torch, torch.nn.functional, torch.nn.init, torch.Tensor, *kinds)
        for name, value in vars(holder).items()
        if isinstance(value, types.FunctionType) and _is_users_code(value)
    }


def _is_users_code(function: types.FunctionType) -> bool:
    path = function.__code__.co_filename
    return not _is_file_installed(path) and (not path.startswith("<") or _is_users(function.__module__))


def _is_file_installed(path: str) -> bool:
    return path.startswith((*_INSTALLED, "<frozen"))


@functools.cache
def _is_users(module: str) -> bool:
    """True for a module that is in no installed package and no part of Python.

    A script's `__main__` is the user's also in a process that the script's functions were sent to.
    """
    path = getattr(sys.modules.get(module), "__file__", None)
    return module == "__main__" or (path is not None and not _is_file_installed(path))


def _is_installed(kind: type) -> bool:
    return not (_is_users(kind.__module__) or kind.__module__ not in sys.modules)


def _holds_attributes(value: Any) -> bool:
    """True for an object of the user's, or a bare namespace, of which code reads some attributes."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, types.MethodType, Mapping, list, tuple, Set)):
        return False
    if type(value).__name__ in ("Namespace", "SimpleNamespace"):
        return True
    return not _is_installed(type(value)) and bool(_own_values(value)) and not hasattr(value, "_parameters")


def _own_values(value: Any) -> dict[str, Any]:
    own = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                own[name] = getattr(value, name)
    return own


def _array_text(value: Any) -> str | None:
    """Kind, shape and a hash of all numbers of a tensor or an array; None for anything else."""
    kind = type(value)
    if kind.__module__ == "torch" and not hasattr(value, "untyped_storage"):
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # a dtype, a device, a layout
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None or not hasattr(value, "__array__"):
        return None
    hashed = hashlib.blake2b(digest_size=8)
    try:
        for block in _blocks(value):
            hashed.update(block)
    except Exception:
        return None
    return f"{kind.__name__} {dtype} {list(shape)} {hashed.hexdigest()}"


def _blocks(value: Any) -> Iterator[Any]:
    """Bytes of a tensor's or an array's numbers in order."""
    if hasattr(value, "untyped_storage"):
        torch = sys.modules["torch"]
        held = value.detach().cpu().contiguous().view(-1)
        yield held.view(torch.uint8).numpy() if held.numel() else b""
    else:
        import numpy as np

        array = np.ascontiguousarray(value)
        yield pickle.dumps(array, 4) if array.dtype.hasobject else array.view(np.uint8).reshape(-1).data
