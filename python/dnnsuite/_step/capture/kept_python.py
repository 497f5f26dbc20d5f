# SPDX-License-Identifier: MIT
"""Python state around a trial step: saved before it, restored after it.

A step that is run in addition to those asked for must leave the user's objects unchanged: every flag, every list. If a
value cannot be restored, such as an iterator, the trial step is not run.
"""

from __future__ import annotations

import collections
import functools
import random
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from ..._fuse import models_apart, plain_models_of
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor
from .guards import modules_of
from .python_state import is_state
from .value_readers import Reader

_MANY = 20_000  # objects that are looked into
_STEPS = __name__.removesuffix("capture.kept_python")
_FIXED = (bool, int, float, complex, str, bytes, type(None), np.generic, torch.dtype, torch.device, range)
_CODE = (types.BuiltinFunctionType, types.CodeType, torch.Tensor, torch.Size)
_NAMESPACES = (type, types.ModuleType)
_UNKNOWN = (
    *(type(functools.lru_cache(len)), random.Random, torch.Generator),
    *(np.random.RandomState, np.random.Generator),
)


class CannotBeKept(Exception):
    """Raised when a value that a step may change cannot be put back; the message names it."""


class KeptPython:
    """Values of the modules of `array` and of all that `readers` read, with their contents.

    Raises:
        CannotBeKept: one of them could not be restored.
    """

    def __init__(self, array: torch.nn.Module, readers: Iterable[Reader]) -> None:
        self._undo: list[Callable[[], None]] = []
        self._seen: dict[int, Any] = {}
        self._waiting: list[Any] = []
        named = list(modules_of(array))
        for _, module in named[:]:
            named += models_apart(module)
            self._undo += [plain.marks() for plain in plain_models_of(module)]
        for _, module in named:
            self._module(module)
        for reader in readers:
            self._reader(reader)
        while self._waiting:
            self._look_into(self._waiting.pop())
        self._generators = random.getstate(), np.random.get_state(), torch.get_rng_state()

    def put_back(self) -> None:
        """Restore all values."""
        for undo in reversed(self._undo):
            undo()
        random.setstate(self._generators[0])
        np.random.set_state(self._generators[1])
        torch.set_rng_state(self._generators[2])

    def _module(self, module: torch.nn.Module) -> None:
        if not isinstance(module, ArrayModule) and self._is_new(module):
            self._names(vars(module), [name for name, value in vars(module).items() if _is_kept(name, value)])
            self._undo.append(functools.partial(_forget_new, vars(module), set(vars(module))))

    def _reader(self, reader: Reader) -> None:
        held = reader.held()

        def undo() -> None:
            if reader.held() is not held:
                reader.put(held)

        self._undo.append(undo)
        if isinstance(held, _NAMESPACES):
            for name in reader.names & vars(held).keys():
                self._binding(held, name)
        else:
            self._waiting.append(held)

    def _binding(self, owner: Any, name: str) -> None:
        """Save the value that a class or a module binds to a name."""
        value = vars(owner)[name]
        if isinstance(value, (*_NAMESPACES, types.FunctionType)) or hasattr(type(value), "__get__"):
            return

        def undo() -> None:
            if vars(owner).get(name) is not value:
                setattr(owner, name, value)

        self._undo.append(undo)
        self._waiting.append(value)

    def _is_new(self, value: Any) -> bool:
        if id(value) in self._seen:
            return False
        if len(self._seen) >= _MANY:
            raise CannotBeKept(f"the code can reach more than {_MANY} objects")
        self._seen[id(value)] = value
        return True

    def _look_into(self, value: Any) -> None:
        if type(value) is ModelTensor and self._is_new(value):
            self._undo.append(functools.partial(value.become, value.value))
        if (
            isinstance(value, (*_FIXED, *_CODE, *_NAMESPACES))
            or _is_of_steps(value)
            or not self._is_new(value)
        ):
            return
        if isinstance(value, _UNKNOWN) or hasattr(type(value), "__next__"):
            raise CannotBeKept(f"the code can reach a {type(value).__name__}, which cannot be set back")
        if isinstance(value, torch.nn.Module):
            self._seen.pop(id(value))
            self._module(value)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self._waiting.append(value.__self__)
        elif isinstance(value, functools.partial):
            self._waiting += [value.func, *value.args, *value.keywords.values()]
        else:
            self._content(value)
            self._attributes(value)

    def _function(self, function: types.FunctionType) -> None:
        self._waiting += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for cell in function.__closure__ or ():
            self._undo.append(functools.partial(_fill, cell, *_cell(cell)))
            self._waiting += _cell(cell)

    def _content(self, value: Any) -> None:
        """Keep the elements of a container."""
        if isinstance(value, dict):
            self._waiting += [*value.keys(), *value.values()]
            self._undo.append(functools.partial(_refill, value, dict(value), dict.update))
        elif isinstance(value, (list, collections.deque)):
            self._waiting += value
            self._undo.append(functools.partial(_refill, value, list(value), type(value).extend))
        elif isinstance(value, set):
            self._undo.append(functools.partial(_refill, value, list(value), set.update))
        elif isinstance(value, (tuple, frozenset)):
            self._waiting += value
        elif isinstance(value, np.ndarray) and value.flags.writeable:
            self._undo.append(functools.partial(np.copyto, value, value.copy()))

    def _attributes(self, value: Any) -> None:
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict):
            self._names(held, list(held))
            self._undo.append(functools.partial(_forget_new, held, set(held)))
        for base in type(value).__mro__:
            for slot in vars(base).values():
                if isinstance(slot, types.MemberDescriptorType) and hasattr(value, slot.__name__):
                    now = slot.__get__(value)
                    if "__slots__" in vars(base):  # those of C, as in an `itemgetter`, are read-only
                        self._undo.append(functools.partial(_set_slot, slot, value, now))
                    self._waiting.append(now)

    def _names(self, held: dict[str, Any], names: list[str]) -> None:
        kept = {name: held[name] for name in names}
        self._undo.append(functools.partial(held.update, kept))
        self._waiting += kept.values()


def _is_kept(name: Any, value: Any) -> bool:
    """Return True for state of the user's, and for a tensor that a forward has left: the next forward may read it."""
    return is_state(name, value) or type(value) is ModelTensor


def _is_of_steps(value: Any) -> bool:
    """Return True for a runner and its parts, which code reaches where a trainer holds both: no forward changes them,
    and they hold all recordings."""
    return type(value).__module__.startswith(_STEPS)


def _forget_new(held: dict[str, Any], known: set[str]) -> None:
    """Remove attributes that were not there before, except the bookkeeping of modules."""
    for name in [name for name, value in held.items() if name not in known and _is_kept(name, value)]:
        del held[name]


def _refill(container: Any, content: Any, fill: Callable[[Any, Any], Any]) -> None:
    before = list(content.items()) if isinstance(content, dict) else list(content)
    now = list(container.items()) if isinstance(container, dict) else list(container)
    if len(before) != len(now) or any(map(_other, before, now)):
        container.clear()
        fill(container, content)


def _other(a: Any, b: Any) -> bool:
    if type(a) is tuple and type(b) is tuple and len(a) == len(b) == 2:  # an item of a dictionary
        return a[0] is not b[0] or a[1] is not b[1]
    return a is not b


def _cell(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # not assigned yet
        return []


def _fill(cell: types.CellType, *content: Any) -> None:
    if content and (not _cell(cell) or cell.cell_contents is not content[0]):
        cell.cell_contents = content[0]
    elif not content and _cell(cell):
        del cell.cell_contents


def _set_slot(slot: Any, owner: Any, value: Any) -> None:
    if slot.__get__(owner) is not value:
        slot.__set__(owner, value)
