# SPDX-License-Identifier: MIT
"""Pictures of what a model's code keeps in attributes: another one is unequal after a change, in place too."""

from __future__ import annotations

import collections
import random
import threading
import types
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from ..nn.model_tensor import ModelTensor
from .code.fused_attributes import NO_ATTRIBUTES, PLAIN_VALUES
from .comparison import dense_parts
from .left_tensors import OPAQUE

_DEEP = 64  # containers and objects in one another that are looked into
_MANY = 4096  # elements of a container or an array that are looked at
_NO_STATE = frozenset(
    (torch.nn.Parameter, torch.Size, types.FunctionType, types.MethodType, type)
)  # looked up in a fraction of the time of `isinstance`


class _Held:
    """An object as it was: equal to one of the same content; a tensor that was written since is equal to none.

    All parameters and modules are equal: they are state that other code takes care of, and a module of an array is
    of another class than that of a model.
    """

    __slots__ = ("content", "parameter", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self.value, self.content = value, None
        self.parameter = isinstance(value, (torch.nn.Parameter, torch.nn.Module))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Held) and (self.parameter or other.parameter):
            return self.parameter and other.parameter
        if not isinstance(other, _Held) or type(other.value) is not type(self.value):
            return False
        if not isinstance(self.value, torch.Tensor):
            return _same_content(self, other)
        if self.value is other.value:
            return bool(self.content == other.content)
        return not (self._written() or other._written()) and _equal(self.value, other.value)

    def _written(self) -> bool:
        return bool(self.content != _version(self.value))


class _Compared(threading.local):
    """Pairs that the comparison under way in this thread has begun: one that is met again, by a second way or in a
    cycle, counts as equal, for if it is not, the comparison ends there."""

    def __init__(self) -> None:
        self.pairs: set[tuple[int, int]] = set()


_compared = _Compared()


def _same_content(a: _Held, b: _Held) -> bool:
    pairs, pair = _compared.pairs, (id(a), id(b))
    if pair in pairs:
        return True
    outermost = not pairs
    pairs.add(pair)
    try:
        return bool(a.content == b.content)
    finally:
        if outermost:
            pairs.clear()


def _version(tensor: torch.Tensor) -> int:
    tensor = tensor.value if type(tensor) is ModelTensor else tensor
    return 0 if tensor.is_inference() else tensor._version


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if type(a) is ModelTensor and type(b) is ModelTensor:
        a, b = a.value, b.value
    alike = a.dtype == b.dtype and a.shape == b.shape and a.layout == b.layout
    return alike and all(map(torch.equal, dense_parts(a), dense_parts(b)))


def may_change_in_place(name: str, value: Any) -> bool:
    """Return True for an attribute of a user's module that a forward may change without assigning it."""
    kind = type(value)
    return not (
        kind in _NO_STATE
        or name in NO_ATTRIBUTES
        or name.startswith("_fused_")
        or isinstance(value, (*PLAIN_VALUES, *OPAQUE))
    )


def pictures(module: torch.nn.Module, known: dict[int, Any]) -> dict[str, Any]:
    """Picture the attributes of a user's module by name, but for numbers and strings, and for modules and functions.

    `known` are pictures taken at this moment, by identity.
    """
    return {
        name: _picture(value, known, _DEEP)
        for name, value in vars(module).items()
        if may_change_in_place(name, value)
    }


def picture(value: Any) -> Any:
    """Picture one value."""
    return _picture(value, {}, _DEEP)


def _picture(value: Any, known: dict[int, Any], depth: int) -> Any:
    if isinstance(value, PLAIN_VALUES):
        return type(value), value
    if id(value) not in known:
        known[id(value)] = held = _Held(value)
        held.content = _content(value, known, depth)
    return known[id(value)]


def _content(value: Any, known: dict[int, Any], depth: int) -> Any:
    """Picture what is in an object; None for one that shows nothing, such as a module or a function."""
    if isinstance(value, torch.Tensor):
        return _version(value)
    if not depth or isinstance(value, OPAQUE):
        return None
    if isinstance(value, (list, tuple, collections.deque)):
        return len(value), [
            _picture(part, known, depth - 1) for part, _ in zip(value, range(_MANY), strict=False)
        ]
    if isinstance(value, dict):
        parts = list(dict.items(value))[:_MANY]
        held = [(_picture(key, known, 1), _picture(part, known, depth - 1)) for key, part in parts]
        return len(value), held, _attributes(value, known, depth)
    if isinstance(value, (set, frozenset)):
        return frozenset(value)
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.size <= _MANY and value.dtype != object else None
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    if hasattr(type(value), "__next__"):
        return _place(value)
    return _attributes(value, known, depth)


def _place(iterator: Any) -> Any:
    """Describe how far an iterator has come; None if it does not say."""
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        return repr(iterator.__reduce__())
    return None


def _attributes(value: Any, known: dict[int, Any], depth: int) -> Any:
    held = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        for name, slot in vars(base).items() if "__slots__" in vars(base) else ():
            if isinstance(slot, types.MemberDescriptorType) and hasattr(value, name):
                held[name] = getattr(value, name)
    return {name: _picture(part, known, depth - 1) for name, part in list(held.items())[:_MANY]}
