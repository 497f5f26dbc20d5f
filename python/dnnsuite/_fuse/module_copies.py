# SPDX-License-Identifier: MIT
"""Deep copies of modules, and of what they hold.

A module is copied attribute by attribute, whatever its class says of copies and pickles: `__setstate__` of einops'
layers calls the constructor, and others make new parameters, where a model of an array has those of the memo. A module
also has a dozen dictionaries, most of them empty, which `copy.deepcopy` takes each through the protocol of pickle.

Some kinds of values `copy.deepcopy` refuses, or copies so that the copy uses the original: locks, references that keep
nothing alive, methods of C, and functions that hold a module, as `old = m.forward; m.forward = lambda x: 2 * old(x)`
makes them. A copy has its own of these. Open files, but for those in memory, modules of Python and the like stay the
same objects: a loop over the models has no others either.
"""

from __future__ import annotations

import collections
import copy
import copyreg
import functools
import io
import logging
import operator
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from .._code import content_of
from ..nn.own_tensors import OwnTensors
from .comparison import PROXIES, REGISTRIES, referred

_FIXED = frozenset(
    [
        *(type(None), bool, int, float, complex, str, bytes, type, range, types.CodeType),
        *(torch.dtype, torch.device, torch.Size, torch.finfo, torch.iinfo, type(...), type(NotImplemented)),
    ]
)
#: Kinds of objects that stay the same in a copy.
_KEPT = (type, types.ModuleType, io.IOBase, logging.Logger, type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor))
_LOCKS = {type(threading.Lock()): threading.Lock, type(threading.RLock()): threading.RLock}
_WEAK_DICTIONARIES = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
_DICTIONARIES = (dict, collections.OrderedDict)
_MISSING = object()
#: Methods by which a class of modules says itself how it is copied.
_PROTOCOL = ("__deepcopy__", "__reduce_ex__", "__reduce__", "__getstate__", "__setstate__")


def held_by(value: Any) -> tuple[Any, ...]:
    """Return what a function, bound method, partial or collection holds."""
    kind = type(value)
    if kind is types.FunctionType:
        keywords = tuple((value.__kwdefaults__ or {}).values())
        return (*(value.__closure__ or ()), *(value.__defaults__ or ()), *keywords)
    if kind is types.CellType:
        return (content_of(value),)
    if kind is types.MethodType:
        return (value.__self__,)
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if kind in (list, tuple):
        return tuple(value)
    return tuple(value.values()) if kind is dict else ()


def all_in(value: Any, parts: Callable[[Any], Iterable[Any]] = held_by) -> Iterator[Any]:
    """Yield a value and all that is in it by `parts`, each once and in order; not what tensors and modules hold."""
    waiting, seen = [value], dict[int, Any]()  # which keeps them alive: no other object may get an id of these
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            yield one
            if type(one) in PROXIES or not isinstance(one, (torch.nn.Module, torch.Tensor)):
                waiting += reversed(list(parts(one)))


def copied(value: Any, memo: dict[int, Any]) -> Any:
    """Copy `value` deeply; `memo`, by id, has the copies that are taken as they are, and gets those that are made.

    It has the copies of parameters: shared ones are not looked for.

    Raises:
        TypeError: for a value that cannot be copied, as `copy.deepcopy` does.
    """
    return _Copy(value, memo).of(value)


class _Copy:
    """One copy of `root`; references that keep nothing alive refer to the copies of what is in it."""

    def __init__(self, root: Any, memo: dict[int, Any]) -> None:
        self._root, self._memo = root, memo

    def of(self, value: Any) -> Any:
        kind: Any = type(value)
        if kind in _FIXED:
            return value
        known = self._memo.get(id(value), _MISSING)
        if known is not _MISSING:
            return known
        if kind in _DICTIONARIES:
            return self._dictionary(value, kind())
        if kind is tuple:
            own = tuple(map(self.of, value))
            return value if all(map(operator.is_, own, value)) else self._memo.setdefault(id(value), own)
        if kind is list:
            parts = self._memo[id(value)] = []
            parts.extend(map(self.of, value))
            return parts
        if issubclass(kind, torch.nn.Module):
            return self._module(value)
        for kinds, make in _WAYS:
            if issubclass(kind, kinds):
                made = make(self, value)
                return made if made is value else self._memo.setdefault(id(value), made)
        return self._object(value)

    def _dictionary(self, value: Any, made: Any) -> Any:
        self._memo[id(value)] = made
        for key, part in value.items():
            name = key if type(key) is str else self.of(key)
            made[name] = part if type(part) in _FIXED else self.of(part)
        return made

    def _module(self, value: torch.nn.Module) -> torch.nn.Module:
        kind: Any = type(value)
        if self._is_array(value):
            made: torch.nn.Module = self._memo.setdefault(id(value), self.of(self._root))
            return made
        made = self._memo[id(value)] = (OwnTensors if issubclass(kind, OwnTensors) else object).__new__(kind)
        held, own = vars(made), vars(value)
        self._memo[id(own)] = held
        for name, part in own.items():
            try:
                held[name] = part if type(part) in _FIXED else self.of(part)
            except TypeError:
                if name in REGISTRIES or not _says_how(_bare(kind)):
                    raise
                held[name] = _copied_by_its_class(value, name)
        return made

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        if type(value) is torch.Tensor and (value.grad_fn is not None or value.layout != torch.strided):
            # What a forward has left has no history in a copy; and `deepcopy` looks for the storage of sparse ones.
            return value.detach().clone()
        return copy.deepcopy(value, self._memo)

    def _method(self, value: types.MethodType) -> Any:
        """Bind a method to the copy; one of an array's layer is torch's own for a model's."""
        old, function = value.__self__, value.__func__
        owner = self.of(old)
        name = getattr(function, "__name__", "")
        if type(owner) is not type(old) and getattr(type(old), name, None) is function and hasattr(type(owner), name):
            return getattr(type(owner), name).__get__(owner)
        return value if owner is old else types.MethodType(function, owner)

    def _function(self, value: types.FunctionType) -> types.FunctionType:
        """Copy a function that holds a module which is copied, too; any other stays the same object."""
        cells: tuple[Any, ...] = value.__closure__ or ()
        if not (cells or value.__defaults__ or value.__kwdefaults__) or not self._leads(value):
            return value
        new = (cell for cell in cells if id(cell) not in self._memo and self._leads(cell))
        late = {id(cell): (types.CellType(), cell) for cell in new}
        self._memo.update({place: cell for place, (cell, _) in late.items()})
        own = tuple(self._memo.get(id(cell), cell) for cell in cells)
        made = types.FunctionType(value.__code__, value.__globals__, value.__name__, None, own)
        self._memo[id(value)] = made  # before what it holds, which may hold it
        for cell, old in late.values():
            cell.cell_contents = self.of(old.cell_contents)
        made.__defaults__ = value.__defaults__ and tuple(map(self._if_it_leads, value.__defaults__))
        made.__kwdefaults__ = value.__kwdefaults__ and {
            name: self._if_it_leads(part) for name, part in value.__kwdefaults__.items()
        }
        made.__dict__.update(value.__dict__)
        made.__qualname__, made.__doc__, made.__module__ = value.__qualname__, value.__doc__, value.__module__
        return made

    def _if_it_leads(self, value: Any) -> Any:
        return self.of(value) if self._leads(value) else value

    def _leads(self, value: Any) -> bool:
        """Return True if a function, or what it holds, holds a module that is copied."""
        modules = (one for one in all_in(value) if isinstance(one, torch.nn.Module))
        return any(id(one) in self._memo or id(one) in self._inside or self._is_array(one) for one in modules)

    def _is_array(self, module: torch.nn.Module) -> bool:
        """Return True for the array that holds the root: in the place of a model it is the model."""
        return self._root is not None and vars(module).get("_root") is self._root

    def _method_of_c(self, value: Any) -> Any:
        """Copy a method of C with its object, as `add` in `self.add = self.items.append`; a function stays as it is."""
        old = value.__self__
        owner = old if isinstance(old, (types.ModuleType, type)) else self.of(old)
        return value if owner is old else getattr(owner, value.__name__)

    def _referred(self, target: Any) -> Any:
        """Return what the copy's references to `target` refer to: its copy, if it is a part of what is copied."""
        if id(target) in self._memo:
            return self._memo[id(target)]
        return self.of(target) if id(target) in self._inside else target

    @functools.cached_property
    def _inside(self) -> set[int]:
        roots = [self._root, getattr(self._root, "__dict__", {}).get("_root")]  # the latter: of an array
        found = [root for root in roots if isinstance(root, torch.nn.Module)]
        return {id(part) for root in found for part in (root, *root.modules(), *root.parameters(), *root.buffers())}

    def _reference(self, value: Any, old: Any, make: Callable[[Any], Any]) -> Any:
        """Make a reference to the copy of `old`, if there is one."""
        new = self._referred(old)
        return value if new is old else make(new)

    def _weak_method(self, value: Any) -> Any:
        method = value()
        old = None if method is None else method.__self__
        return self._reference(value, old, lambda new: weakref.WeakMethod(types.MethodType(method.__func__, new)))

    def _weak_dictionary(self, value: Any) -> Any:
        weak_keys = type(value) is weakref.WeakKeyDictionary
        made = type(value)()
        for key, part in list(value.items()):
            made[self._referred(key) if weak_keys else self.of(key)] = (
                self.of(part) if weak_keys else self._referred(part)
            )
        return made

    def _handle(self, value: RemovableHandle) -> RemovableHandle:
        """Copy the handle of a hook, unless its module is no more."""
        return value if value.hooks_dict_ref() is None else self._object(value)

    def _object(self, value: Any) -> Any:
        """Copy by the class's `__deepcopy__`, else by the protocol of pickle."""
        kind: Any = type(value)
        if hasattr(kind, "__deepcopy__"):
            made = kind.__deepcopy__(value, self._memo)
            return self._memo.setdefault(id(value), made)
        reduce = copyreg.dispatch_table.get(kind)
        parts = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(parts, str):  # the name of something global
            return value
        self._memo.setdefault(id(self._memo), []).append(parts)  # its ids must not be used again
        make, arguments, state, items, pairs = (*parts, None, None, None)[:5]
        made = self._memo[id(value)] = make(*map(self.of, arguments))
        if state is not None:
            _set_state(made, self.of(state))
        for item in items or ():
            made.append(self.of(item))
        for key, part in pairs or ():
            made[self.of(key)] = self.of(part)
        return made


_WAYS: tuple[tuple[Any, Callable[[_Copy, Any], Any]], ...] = (
    ((io.BytesIO, io.StringIO), _Copy._object),
    (_KEPT, lambda copy, value: value),
    (torch.Tensor, _Copy._tensor),
    (types.FunctionType, _Copy._function),
    (types.MethodType, _Copy._method),
    ((types.BuiltinFunctionType, types.MethodWrapperType), _Copy._method_of_c),
    (tuple(_LOCKS), lambda copy, value: _LOCKS[type(value)]()),
    (weakref.WeakMethod, _Copy._weak_method),
    (weakref.ref, lambda copy, value: copy._reference(value, value(), weakref.ref)),
    (PROXIES, lambda copy, value: copy._reference(value, referred(value), weakref.proxy)),
    (_WEAK_DICTIONARIES, _Copy._weak_dictionary),
    (RemovableHandle, _Copy._handle),
    (
        types.MappingProxyType,
        lambda copy, value: types.MappingProxyType({copy.of(key): copy.of(part) for key, part in value.items()}),
    ),
)


def _set_state(made: Any, state: Any) -> None:
    """Give an object its state, as `copy.deepcopy` and `pickle` do."""
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        vars(made).update(attributes)
    for name, part in (slots or {}).items():
        setattr(made, name, part)


def _copied_by_its_class(module: torch.nn.Module, name: str) -> Any:
    """Take an attribute that cannot be copied from the copy that the module's class makes."""
    plain = object.__new__(_bare(type(module)))
    vars(plain).update(vars(module))
    return vars(copy.deepcopy(plain)).get(name)


def _bare(kind: Any) -> Any:
    return getattr(kind, "_fused_original", kind)


@functools.lru_cache(maxsize=1024)
def _says_how(kind: Any) -> bool:
    """Return True for a class of modules that says itself how it is copied."""
    classes = [base for base in kind.__mro__ if base not in (object, torch.nn.Module)]
    return any(name in vars(base) for base in classes for name in _PROTOCOL)
