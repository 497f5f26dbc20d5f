# SPDX-License-Identifier: MIT
"""One walk through all that Python code can see in a value, and the snapshot that it takes.

A snapshot is hashable, and unequal to any that is taken after a change. What has no such snapshot, an iterator for
instance, is `Unknown`: it is listed with its place, so that nobody takes it for unchanged. The walk keeps a shallow
copy of each container on its way: `same` compares all of them at the speed of C, which is what an unchanged value
costs in each step.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import functools
import math
import operator
import re
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Collection, Iterable
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import torch

MOST = 2**20  # elements of an array, bytes of a buffer and containers' elements that are compared
_OBJECTS = 20_000  # that one walk looks into
_DEEP = 100  # objects in one another
#: Immutable values that compare by what they are.
PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, np.number, np.bool_, np.str_, np.dtype),
    *(np.datetime64, np.timedelta64),
    *(decimal.Decimal, fractions.Fraction, re.Pattern),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
)
PLAIN_TYPES = frozenset(PLAIN) - {decimal.Decimal}  # looked up faster than `isinstance` decides
_PLAIN_TYPES = PLAIN_TYPES | {torch.Size, datetime.datetime}
_POINTER = 8  # bytes
_BASES = operator.attrgetter("__mro__")
_METHODS = (types.FunctionType, property, classmethod, staticmethod, functools.cached_property)
_NO_VALUES = (*_METHODS, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type)
_OF_C = (
    *(types.MemberDescriptorType, types.GetSetDescriptorType),
    type(vars(collections.namedtuple("_Fields", "field"))["field"]),  # which reads an element of the tuple
)
_ASKS_CODE = ("__getattr__", "__getattribute__")

Path = tuple[int, ...]
Put = Callable[[Any], None]


class Unknown(Exception):
    """Raised, or listed, for what cannot be compared: `what` it is and `where`; `name` is the name by which code
    reaches it, None if it needs none."""

    def __init__(self, what: str, where: str, name: str | None = None) -> None:
        super().__init__(f"{what} at {where}")
        self.what, self.where, self.name = what, where, name


class Same:
    """Stands for one object: equal to another that stands for the same, also once the object is no more."""

    __slots__ = ("_hash", "_kind", "_ref")

    def __init__(self, value: Any) -> None:
        self._hash, self._kind = id(value), type(value).__name__
        try:
            self._ref: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._ref = lambda: value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        mine = self._ref()
        return mine is not None and type(other) is Same and other._ref() is mine

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<{self._kind} {self._hash}>"


class Walk:
    """Walk through `root`.

    Args:
        names: attributes of users' objects that count, those that code names; None for all.
        where: name of the root in the places of unknown values.
        name: the name by which code reaches the root.
        places: collect the plain values that can be replaced, with their paths in the snapshot.
        put: replaces the root.
        own: ids of modules of arrays that others compare; those of other arrays are looked into. None: none is.

    Attributes:
        snapshot: equal only to one of an unchanged value.
        unknown: what it does not tell.
        marks: what tells its values from equal ones that code tells apart, of other types for instance.
        objects: those that stand in it by their identity.
        code: functions and classes that code may call from here.
    """

    _of_its_time = True  # settings that decide on values count, too

    def __init__(
        self,
        root: Any,
        names: frozenset[str] | None = None,
        where: str = "",
        name: str | None = None,
        places: bool = False,
        put: Put | None = None,
        own: Collection[int] | None = None,
    ) -> None:
        self.root, self.names, self.own = root, names, own
        self.unknown: list[Unknown] = []
        self.objects: list[Any] = []
        self.code: list[Any] = []
        self._marks: list[Any] = []
        self.places: list[tuple[Path, Any, Put]] = []
        self._collects = places
        self._live: list[Any] = []
        self._copies: list[Any] = []
        self._by_identity: tuple[list[Any], list[Any]] = [], []
        self._spaces: set[type] = set()
        self._below_weak = 0
        self._looks: list[tuple[Callable[[], Any], Any, bool]] = []
        self._objects_of: list[Any] = []
        self._tensors: list[torch.Tensor] = []
        self._forms: list[tuple[int, torch.Size, bool]] = []
        self._kinds: list[Any] = []
        self._classes: dict[type, tuple[type, ...]] = {}
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no other object gets the identity of one that was seen
        self._labels: list[str] = [where]
        self._names: list[str | None] = [name]
        self.snapshot = self.look(root, None, (), put)
        self.marks = tuple(self._marks)
        self._kept.clear()  # what a weak reference leads to may go

    # -- for those who compare -------------------------------------------------------------------------------------

    def same(self) -> bool:
        """Return True if nothing has changed since the walk; False where that takes another walk to tell."""
        try:
            if self._live != self._copies or any(map(holds_others, *self._by_identity)):
                return False
            if list(map(type, self._objects_of)) != self._kinds:
                return False
            if any(map(operator.is_not, map(_BASES, self._classes), self._classes.values())):
                return False
            if list(map(_form_of, self._tensors)) != self._forms:
                return False
            for read, before, by_identity in self._looks:
                now = read()
                if now is not before and (by_identity or now != before):
                    return False
        except Exception:  # arrays and tensors have no one answer; code of a user's may be asked
            return False
        return True

    # -- for the handlers of kinds ---------------------------------------------------------------------------------

    def look(self, value: Any, label: str | None, at: Path, put: Put | None = None, named: bool = False) -> Any:
        """Take the snapshot of a part, `at` this path in that of the whole; `label` says where it is in its holder."""
        if is_plain(value):
            self._marks.append(mark(value))
            if self._of_its_time and isinstance(value, decimal.Decimal):
                self._marks.append(self.watch_by(lambda: repr(decimal.getcontext())))  # it decides on arithmetic
            if put is not None and self._collects:
                self.places.append((at, value, put))
            return value
        known = self._seen.get(id(value))
        if known is not None:
            return ("again", known)
        if len(self._seen) >= _OBJECTS:
            return self.stop(value, f"more than {_OBJECTS} objects")
        if len(self._labels) > _DEEP:
            return self.stop(value, f"objects more than {_DEEP} deep")
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        if label is not None:
            self._labels.append(label)
            self._names.append(label[1:] if named else None)
        kind: Any = type(value)
        self._marks.append((kind, id(kind)))  # a list may be equal to one of another class
        try:
            return handler_of(kind)(self, value, at)
        finally:
            if label is not None:
                self._labels.pop()
                self._names.pop()

    def watch(self, container: Any, copy: Any) -> None:
        """Compare a container with this shallow copy from now on."""
        self._live.append(container)
        self._copies.append(copy)
        if holds_lookalikes(copy):
            self._by_identity[0].append(container)
            self._by_identity[1].append(copy)

    def watch_by(self, read: Callable[[], Any], by_identity: bool = False) -> Any:
        """Read a value, and compare it with what `read` returns later."""
        value = read()
        self._looks.append((read, value, by_identity))
        return value

    def watch_memory(self, tensor: torch.Tensor) -> Any:
        """Return the layout of a tensor, and look at it again where `.data = ...`, `resize_` or `requires_grad_` has
        changed it."""
        self._tensors.append(tensor)
        self._forms.append(_form_of(tensor))
        address = tensor.data_ptr() if tensor.is_cuda else 0  # a graph of CUDA keeps it
        return tuple(tensor.shape), tensor.stride(), tensor.dtype, address, tensor.requires_grad

    def look_weakly(self, value: Any, at: Path) -> Any:
        """Take the snapshot of what a weak reference leads to, which the walk must not keep alive."""
        self._below_weak += 1
        try:
            return self.look(value, "()", at)
        finally:
            self._below_weak -= 1

    def identity(self, value: Any) -> Any:
        """Return what stands for an object that is compared by its identity."""
        if not self._below_weak:
            self.objects.append(value)
        return Same(value)

    def stop(self, value: Any, what: str) -> Any:
        """Note that a value cannot be compared."""
        name = next((one for one in reversed(self._names) if one is not None), None)
        self.unknown.append(Unknown(what, "".join(self._labels), name))
        return self.identity(value)

    def plain(self, values: Iterable[Any]) -> None:
        """Note plain values that stand in the snapshot as they are."""
        self._marks += map(mark, values)

    def parts(self, values: Iterable[Any], at: Path, held: Any = None) -> tuple[Any, ...]:
        """Take the snapshots of elements; those of a list can be replaced in `held`."""
        return tuple(
            self.look(part, f"[{n}]", (*at, n), None if held is None else functools.partial(operator.setitem, held, n))
            for n, part in enumerate(values)
        )

    def items(self, value: dict[Any, Any], at: Path) -> tuple[Any, ...]:
        """Take the snapshots of the items of a dictionary."""
        found = []
        for n, (key, part) in enumerate(bare_dictionary(value).items(value)):
            label = f"[{key!r}]" if type(key) in (str, int) else "[...]"
            put = functools.partial(operator.setitem, value, key)
            found.append((self.look(key, "(key)", (*at, n, 0)), self.look(part, label, (*at, n, 1), put)))
        return tuple(found)

    def attributes(self, value: Any, at: Path, all_names: bool = False) -> tuple[Any, ...]:
        """Take the snapshots of the attributes of an object that count: its own, those in slots, and its class's."""
        kind: Any = type(value)
        if not self._below_weak:
            self._objects_of.append(value)
            self._kinds.append(kind)
        self._classes[kind] = kind.__mro__
        own = not all_names and _is_the_users(kind) and not _asks_code(kind)
        names = self.names if own else None
        found: list[Any] = []
        held = dictionary_of(value)
        if held is not None:
            self.watch(held, dict(held))
            for name in held if names is None else [name for name in held if name in names]:
                self._attribute(found, functools.partial(operator.setitem, held, name), name, held[name], at, own)
        for slot in slots_in(kind):
            if names is None or slot.__name__ in names:
                now = self.watch_by(functools.partial(_in_slot, slot, value), by_identity=True)
                if now is not _MISSING:
                    self._attribute(found, functools.partial(slot.__set__, value), slot.__name__, now, at, own)
        for base in _users_bases(kind.__mro__):
            self.of_class(base, found, at, names, held or ())
        self.code.append(kind)
        return tuple(found)

    def of_class(
        self, kind: type, found: list[Any], at: Path, names: frozenset[str] | None, hidden: Iterable[str] = ()
    ) -> None:
        """Take the snapshots of a class's values that code names, but for those that an object of it hides, and of its
        methods."""
        space = vars(kind)
        methods = [value for name, value in space.items() if isinstance(value, _METHODS)]
        self.code += methods
        found.append(("methods", tuple(map(Same, methods))))
        shown = [
            name
            for name, value in space.items()
            if (names is None or name in names)
            and name not in hidden
            and not (name.startswith(("__", "_abc_")) or isinstance(_unbound(value), _NO_VALUES))
            and not isinstance(value, _OF_C)
        ]
        if kind not in self._spaces:  # another name may come in
            self._spaces.add(kind)
            self.watch(space, dict(space))
        for name in shown:
            self._attribute(found, functools.partial(setattr, kind, name), name, space[name], at)

    def _attribute(self, found: list[Any], put: Put, name: str, value: Any, at: Path, named: bool = True) -> None:
        inner = (*at, len(found), 1)
        found.append((name, self.look(value, f".{name}", inner, put, named)))


#: Kinds of which equal values are alike: of others there are 1, 1.0 and True, two zeros, and times in two zones.
_ALIKE_IF_EQUAL = frozenset((str, bytes, type(None), type(...), *_NO_VALUES, *_OF_C))
#: Kinds of which values that are equal have other digits, bounds, zones or signs, and all are in their text.
_TOLD_BY_TEXT = (
    *(decimal.Decimal, complex, np.complexfloating, range),
    *(datetime.datetime, datetime.time, datetime.tzinfo),
)


def holds_lookalikes(container: Any) -> bool:
    """Return True if equality does not tell all about the values, and keys, of a container."""
    kinds = set(map(type, container))
    if isinstance(container, dict):
        kinds.update(map(type, container.values()))
    return not kinds <= _ALIKE_IF_EQUAL


def holds_others(now: Any, before: Any) -> bool:
    """Return True if a container holds other objects than an equal copy."""
    if isinstance(before, (set, frozenset)):  # a copy may have another order
        kinds = set(map(type, before))
        if kinds != set(map(type, now)):
            return True
        return not kinds <= {*_ALIKE_IF_EQUAL, int} and set(map(id, now)) != set(map(id, before))
    if isinstance(before, dict):
        mine, theirs = bare_dictionary(now), bare_dictionary(before)
        others = any(map(operator.is_not, mine.values(now), theirs.values(before)))
        return others or any(map(operator.is_not, mine.keys(now), theirs.keys(before)))
    return any(map(operator.is_not, now, before))


def mark(value: Any) -> Any:
    """Return what tells a plain value from those that are equal to it: its type, the sign of a zero, or its text."""
    kind = type(value)
    if kind in _ALIKE_IF_EQUAL or kind is int:
        return kind
    if isinstance(value, (float, np.floating)):
        return (kind, "-0.0") if not value and math.copysign(1.0, value) < 0 else kind
    return (kind, repr(value)) if isinstance(value, _TOLD_BY_TEXT) else kind


def alike(a: Any, b: Any) -> bool:
    """Return True for one object, and for plain values that code cannot tell apart."""
    if a is b or type(a) is not type(b):
        return a is b
    return is_plain(a) and is_plain(b) and mark(a) == mark(b) and bool(a == b)


def is_plain(value: Any) -> bool:
    """Return True for an immutable value that compares by what it is: one of a user's class may have attributes."""
    kind: Any = type(value)
    if kind in _PLAIN_TYPES:
        return True
    if not isinstance(value, PLAIN):
        return False
    held = dictionary_of(value) if issubclass(kind, PLAIN) else None  # a number's stand-in only says it is one
    return not held and not slots_in(kind) and (held is None or not _is_the_users(kind))


def _form_of(tensor: torch.Tensor) -> tuple[int, torch.Size, bool]:
    return tensor.data_ptr(), tensor.size(), tensor.requires_grad


def _unbound(value: Any) -> Any:
    return value.__func__ if isinstance(value, (classmethod, staticmethod)) else value


# -- classes -------------------------------------------------------------------------------------------------------

_MISSING = object()
_installed = (
    *(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")),
    str(FilePath(torch.__file__).parents[1]),
)
_PACKAGE = __name__.partition(".")[0]


@functools.lru_cache(maxsize=4096)
def _is_the_users(kind: Any) -> bool:
    """Return True for a class whose code is a user's, or of this package: its names are known, an installed package's
    are not."""
    module = kind.__module__
    if module == "builtins" or module == "typing":
        return False
    if module.partition(".")[0] == _PACKAGE or module == "types":  # `SimpleNamespace` has no code of its own
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module in ("__main__", "__mp_main__") or module not in sys.stdlib_module_names
    return kind.__qualname__ == "Namespace" or not (
        file.startswith(_installed) or "site-packages" in file or "dist-packages" in file
    )


@functools.lru_cache(maxsize=4096)
def _asks_code(kind: Any) -> bool:
    """Return True for a class that answers for attributes by code: any name may lead to any attribute."""
    return any(name in vars(base) for base in kind.__mro__ if _is_python(base) for name in _ASKS_CODE)


@functools.lru_cache(maxsize=4096)
def _users_bases(bases: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(base for base in bases if _is_python(base) and _is_the_users(base))


@functools.lru_cache(maxsize=4096)
def _is_python(kind: Any) -> bool:
    return bool(kind.__flags__ & (1 << 9)) and "__module__" in vars(kind)


@functools.lru_cache(maxsize=4096)
def slots_in(kind: Any) -> tuple[Any, ...]:
    """List the slots that Python code has given a class and its bases."""
    return tuple(
        slot
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for slot in vars(base).values()
        if isinstance(slot, types.MemberDescriptorType)
    )


def slots_of(kind: Any) -> tuple[str, ...]:
    """Name the slots that Python code has given a class and its bases."""
    return tuple(slot.__name__ for slot in slots_in(kind))


def _in_slot(slot: Any, value: Any) -> Any:
    try:
        return slot.__get__(value)
    except AttributeError:
        return _MISSING


def dictionary_of(value: Any) -> Any:
    """Return the dictionary of an object's attributes; None if it has none."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return held if type(held) is dict else None


def attribute_of(value: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of a user's object; its class may answer by code, and for a name that it has not with any
    error: `__getattr__ = dict.__getitem__` with a `KeyError`."""
    try:
        return getattr(value, name, default)
    except Exception:
        return default


def bare_dictionary(value: Any) -> Any:
    """Return the class whose methods read and write a dictionary as it is: one that keeps an order has its own, and so
    has the namespace of a class."""
    if isinstance(value, types.MappingProxyType):
        return types.MappingProxyType
    return collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict


@functools.lru_cache(maxsize=4096)
def hides_state(kind: Any) -> bool:
    """Return True for a class whose objects have more in them than attributes that Python shows: state of C code."""
    size = kind.__basicsize__ - object.__basicsize__ - _POINTER * len(slots_in(kind))
    size -= _POINTER * (kind.__dictoffset__ > 0)
    size -= _POINTER * (getattr(kind, "__weakrefoffset__", 0) > 0)
    return size != 0 or kind.__itemsize__ != 0


# -- handlers ------------------------------------------------------------------------------------------------------

Handler = Callable[[Walk, Any, Path], Any]
HANDLERS: dict[type, Handler] = {}


@functools.lru_cache(maxsize=4096)
def handler_of(kind: Any) -> Handler:
    """Find the handler of a kind of values: its own, that of the nearest base, else the one for objects."""
    return next((HANDLERS[base] for base in kind.__mro__ if base in HANDLERS), look_at_object)


def look_at_object(walk: Walk, value: Any, at: Path) -> Any:
    """Look at an object by its attributes; stop at one that hides state in C code."""
    kind: Any = type(value)
    if hides_state(kind):
        what = "an iterator" if hasattr(kind, "__next__") else "a value of a type that is not looked into"
        return walk.stop(value, f"{what} ({kind.__name__})")
    return walk.identity(value), walk.attributes(value, (*at, 1))
