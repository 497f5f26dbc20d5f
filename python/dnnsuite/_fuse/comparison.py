# SPDX-License-Identifier: MIT
"""Comparison of the models' plain attributes; values that cannot be compared count as different.

Attributes that are the same in all models are kept once, so a wrong "same" gives every model the state of the first.
A wrong "different" costs time only: those models run one by one, each with its own.
"""

from __future__ import annotations

import collections
import functools
import pathlib
import struct
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.fx
from torch.utils.hooks import RemovableHandle

from .._code import content_of, keeps_state, names_of
from .._state import slots_of
from ..nn.model_tensor import physical

_BY_VALUE = (
    *(bool, int, float, complex, str, bytes, bytearray, range, slice, set, frozenset),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, pathlib.PurePath),
)
_PLAIN = frozenset((bool, int, float, complex, str, bytes))
_NEVER_EQUAL = (types.ModuleType, types.GeneratorType)
#: Objects without a value of their own; handles are those of hooks, which are compared where they are.
_STATELESS = (type(threading.Lock()), type(threading.RLock()), RemovableHandle)
#: Classes whose objects hold nothing but elements, a value, `__dict__` and slots.
_TRANSPARENT = frozenset([
    object, bool, int, float, complex, str, bytes, bytearray, set, frozenset, list, tuple, dict,
    collections.deque, collections.OrderedDict, collections.defaultdict, types.SimpleNamespace,
])  # fmt: skip
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_WORD = struct.calcsize("P")
_MISSING = object()
#: What Python notes in a class, and says nothing about its code.
_OF_A_CLASS = frozenset([
    "__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__slotnames__",
    "__annotations__", "__annotate_func__", "__static_attributes__", "_abc_impl",
])  # fmt: skip
#: Attributes of every module, which are torch's.
REGISTRIES = frozenset(vars(torch.nn.Module()))
PROXIES = (weakref.ProxyType, weakref.CallableProxyType)


def referred(proxy: Any) -> Any:
    """Return what a `weakref.proxy` refers to; None if that is gone."""
    try:
        return proxy.__init__.__self__
    except ReferenceError:
        return None


def dense_parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """List the strided tensors that a sparse one consists of; of another, itself."""
    if x.layout == torch.strided:
        return (x,)
    if x.layout == torch.sparse_coo:
        return (x.indices(), x.values()) if x.is_coalesced() else (x._indices(), x._values())
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return x.crow_indices(), x.col_indices(), x.values()
    return x.ccol_indices(), x.row_indices(), x.values()


class Comparison:
    """Comparison of models' attributes as far as their code can tell them apart.

    `registered` maps the id of every parameter, buffer and module to its place in the model. Two of them are the same
    if their places are; values are compared elsewhere. Without it all of them count as the same.
    """

    def __init__(self, registered: Mapping[int, str] | None = None) -> None:
        self._registered = registered
        self._under_way: set[tuple[int, int]] = set()

    def same(self, a: Any, b: Any) -> bool:
        """Return True if `a` of one model means what `b` of another does."""
        if a is b:
            return True
        if type(a) is not type(b) and not self.classes(type(a), type(b)):
            return self._are_parts(a, b) and a is not None and b is not None
        if type(a) in _PLAIN:
            return _equal(a, b)
        pair = (id(a), id(b))
        if pair in self._under_way:
            return True  # one that holds itself
        self._under_way.add(pair)
        try:
            return self._compare(a, b)
        finally:
            self._under_way.discard(pair)

    def _are_parts(self, a: Any, b: Any) -> bool:
        """Return True for modules and parameters whose places do not count: an array's are of other classes than a
        model's, and a model that is a part of another does not keep alive what it refers to."""
        parts = (torch.nn.Module, torch.nn.Parameter, type(None))
        return self._registered is None and isinstance(a, parts) and isinstance(b, parts)

    def _compare(self, a: Any, b: Any) -> bool:
        if type(a) in PROXIES or isinstance(a, weakref.ref):
            a, b = (referred(a), referred(b)) if type(a) in PROXIES else (a(), b())
            return self._are_parts(a, b) or self.same(a, b)
        if isinstance(a, (torch.nn.Parameter, torch.nn.Module)):
            if self._registered is None:
                return True
            places = self._registered.get(id(a)), self._registered.get(id(b))
            if places[0] is not None and places[1] is not None:
                return places[0] == places[1]
        for kind, compare in _KINDS:
            if isinstance(a, kind):
                return compare(self, a, b)
        attributes = ("__dict__", *slots_of(type(a)))  # also those of a class that derives from a collection
        if isinstance(a, collections.defaultdict):
            attributes = (*attributes, "default_factory")
        return self._elements(a, b) and self._alike(a, b, attributes) and self._hidden(a, b)

    def tensors(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        a, b = physical(a), physical(b)
        alike = a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and a.layout == b.layout
        return alike and a.requires_grad == b.requires_grad and all(map(torch.equal, dense_parts(a), dense_parts(b)))

    def arrays(self, a: np.ndarray, b: np.ndarray) -> bool:
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return self.same(a.tolist(), b.tolist()) if a.dtype.hasobject else a.tobytes() == b.tobytes()

    def classes(self, a: type, b: type) -> bool:
        """Compare classes by their code: a function that makes models may make their class, too."""
        made = a.__qualname__ == b.__qualname__ and is_made_by_python(a) and is_made_by_python(b)
        return made and self.unlike(a, b) is None

    def unlike(self, a: type, b: type) -> str | None:
        """Name what two classes of one name do not have in common; None for nothing."""
        if len(a.__bases__) != len(b.__bases__) or not all(map(self.same, a.__bases__, b.__bases__)):
            return "their bases"
        mine, other = ({n: v for n, v in vars(kind).items() if n not in _OF_A_CLASS} for kind in (a, b))
        self._under_way.add((id(a), id(b)))  # methods hold their class
        both = ((name, mine.get(name, _MISSING), other.get(name, _MISSING)) for name in {**mine, **other})
        return next((name for name, *values in both if not self.same(*values)), None)

    def functions(self, a: types.FunctionType, b: types.FunctionType) -> bool:
        alike = a.__code__ is b.__code__ or _without_places(a.__code__) == _without_places(b.__code__)
        alike = alike and (a.__globals__ is b.__globals__ or self._same_globals(a, b))
        cells = [[content_of(cell, _MISSING) for cell in f.__closure__ or ()] for f in (a, b)]
        held = alike and self.same(*cells) and self._alike(a, b, ("__defaults__", "__kwdefaults__", "__dict__"))
        return held and (not keeps_state(a) or _share_state(a, b))

    def _same_globals(self, a: types.FunctionType, b: types.FunctionType) -> bool:
        """Compare the globals that functions of two modules of Python, with the same code, may read."""
        names = names_of(a.__code__)
        return all(self.same(*(f.__globals__.get(name, _MISSING) for f in (a, b))) for name in names)

    def bound(self, a: Any, b: Any) -> bool:
        """Compare two bound methods, of Python or of C, or two C functions."""
        parts = self._are_parts(a.__self__, b.__self__)
        return self._alike(a, b, ("__name__",) if parts else ("__name__", "__func__", "__self__"))

    def graphs(self, a: torch.fx.Graph, b: torch.fx.Graph) -> bool:
        mine, other = a.python_code("self"), b.python_code("self")
        return mine.src == other.src and self.same(mine.globals, other.globals)

    def _elements(self, a: Any, b: Any) -> bool:
        """Compare numbers and strings by value, collections item by item."""
        if isinstance(a, _BY_VALUE):
            return _equal(a, b)
        if isinstance(a, (list, tuple, collections.deque)):
            bounds = (getattr(a, "maxlen", None), getattr(b, "maxlen", None))
            return len(a) == len(b) and bounds[0] == bounds[1] and all(map(self.same, a, b))
        if isinstance(a, dict):
            items: Any = collections.OrderedDict if isinstance(a, collections.OrderedDict) else dict
            return len(a) == len(b) and all(map(self.same, items.items(a), items.items(b)))
        return True

    def _alike(self, a: Any, b: Any, names: Sequence[str]) -> bool:
        return all(self.same(getattr(a, name, _MISSING), getattr(b, name, _MISSING)) for name in names)

    def _hidden(self, a: Any, b: Any) -> bool:
        """Compare state that only C code sees, by the class's `==`, or by the bytes that pickle would write."""
        kind: Any = type(a)
        if not has_hidden_state(kind):
            return True
        if isinstance(type(a).__eq__, types.WrapperDescriptorType) and type(a).__eq__ is not object.__eq__:
            return _equal(a, b)
        if hasattr(type(a), "__next__"):  # reading an iterator's state may move it
            return False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.same(a.__reduce_ex__(2), b.__reduce_ex__(2))
        except Exception:  # whatever keeps it from being pickled
            return False


_KINDS: tuple[tuple[Any, Callable[[Comparison, Any, Any], bool]], ...] = (
    (torch.Tensor, Comparison.tensors),
    (np.ndarray, Comparison.arrays),
    (types.FunctionType, Comparison.functions),
    ((types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType), Comparison.bound),
    (functools.partial, lambda self, a, b: self._alike(a, b, ("func", "args", "keywords", "__dict__"))),
    (torch.Generator, lambda self, a, b: a.device == b.device and self.same(a.get_state(), b.get_state())),
    (_STATELESS, lambda self, a, b: True),
    (type, Comparison.classes),
    ((property, staticmethod, classmethod), lambda self, a, b: self._alike(a, b, ("fget", "fset", "fdel", "__func__"))),
    (types.MemberDescriptorType, lambda self, a, b: a.__name__ == b.__name__),
    (torch.fx.Graph, Comparison.graphs),
    (_NEVER_EQUAL, lambda self, a, b: False),
)


def _without_places(code: types.CodeType) -> types.CodeType:
    """Return code that compares equal wherever it was written down."""
    parts = tuple(_without_places(part) if isinstance(part, types.CodeType) else part for part in code.co_consts)
    return code.replace(co_firstlineno=1, co_linetable=b"", co_consts=parts)


def _share_state(a: types.FunctionType, b: types.FunctionType) -> bool:
    """Return True if two functions keep state in the same place: variables of one closure, the same containers, or
    modules, of which each model has its own."""
    both = ([*(f.__closure__ or ()), *(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()] for f in (a, b))
    pairs = ((x, y, content_of(x) if isinstance(x, types.CellType) else x) for x, y in zip(*both, strict=True))
    return all(x is y or isinstance(held, torch.nn.Module) for x, y, held in pairs)


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b) or bool(a != a and b != b)
    except Exception:  # an answer that is no truth value, or none
        return False


def is_made_by_python(kind: Any) -> bool:
    """Return True for a class that a `class` statement, or an extension at run time, has made."""
    return bool(kind.__flags__ & _HEAP_TYPE)


@functools.lru_cache(maxsize=4096)
def has_hidden_state(kind: Any) -> bool:
    """Return True if objects of `kind` are larger than their elements, `__dict__` and slots explain."""
    if kind in _TRANSPARENT:
        return False
    base: Any = kind.__base__
    if base is None or not is_made_by_python(kind):
        return True
    own = [value for value in vars(kind).values() if isinstance(value, types.MemberDescriptorType)]
    known = len(own) + ("__dict__" in vars(kind)) + ("__weakref__" in vars(kind))
    return kind.__basicsize__ - base.__basicsize__ > known * _WORD or has_hidden_state(base)


def same(a: Any, b: Any, registered: Mapping[int, str] | None = None) -> bool:
    """Return True if two attributes of two models mean the same to their code."""
    try:
        return Comparison(registered).same(a, b)
    except RecursionError:  # too deep a nest to compare
        return False


def differences(models: Sequence[torch.nn.Module], registered: Mapping[int, str] | None = None) -> dict[str, int]:
    """Find the plain attributes in which a model differs from the first one: name to the first such model."""
    first, found = vars(models[0]), {}
    for index, model in enumerate(models[1:], 1):
        other = vars(model)
        for name in {**first, **other}:
            if name in found or name in REGISTRIES:
                continue
            both = name in first and name in other
            if not both or not same(first[name], other[name], registered):
                found[name] = index
    return found


def registered_in(models: Sequence[torch.nn.Module]) -> dict[int, str]:
    """Name the place in its model's tree of each parameter, buffer and module, by id."""
    return {
        id(found): name
        for model in models
        for name, found in (*model.named_parameters(), *model.named_buffers(), *model.named_modules())
    }
