# SPDX-License-Identifier: MIT
"""Tensors that code of all models has left in attributes, and pictures of what models keep, unequal after a change.

Whatever takes some models of an array, or one, or adds some, takes theirs of these tensors too: each has all models'.
"""

from __future__ import annotations

import collections
import copy
import logging
import random
import threading
import types
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from ..nn.model_tensor import ModelTensor
from .code.fused_attributes import NO_ATTRIBUTES, PLAIN_VALUES
from .comparison import dense_parts
from .hooks import counterparts
from .module_copies import copied

_DEEP = 3  # containers in containers that are looked into
_LISTS = (list, tuple, collections.deque)
_PLAIN_TYPES = frozenset(PLAIN_VALUES)
#: Of these no content is looked into. Loggers belong to the process, and hold all others of it; operators never change.
OPAQUE = (
    *(torch.nn.Module, torch.dtype, torch.device, type, types.ModuleType),
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType),
    *(logging.Logger, logging.Handler, type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor)),
)


class NotJoined(Exception):
    """Raised for values of models that are not one value of all of them."""


def left_in(module: torch.nn.Module) -> Iterator[ModelTensor]:
    """Yield the tensors of all models in the attributes of a module, and in containers and objects there."""
    for name, value in vars(module).items():
        if name not in NO_ATTRIBUTES and type(value) not in _PLAIN_TYPES:
            yield from (tensor for tensor in tensors_in(value) if type(tensor) is ModelTensor)


def keeps_more(module: torch.nn.Module) -> bool:
    """Return True if a module of an array keeps something for each model beside parameters and buffers."""
    own = vars(module)
    apart = own.get("_fused_parts") is not None or own.get("_fused_own") is not None
    return apart or any(True for _ in left_in(module))


def tensors_in(value: Any, depth: int = _DEEP) -> Iterator[torch.Tensor]:
    """Yield a tensor, or those in a container or an object, and in such in there."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth:
        for part in parts_inside(value):
            if type(part) not in _PLAIN_TYPES:
                yield from tensors_in(part, depth - 1)


def parts_inside(value: Any) -> Iterable[Any]:
    """List what a container or an object of a user's holds."""
    if isinstance(value, _LISTS):
        return value
    if isinstance(value, dict):
        # Of a dictionary of the models' code its values, whatever that code does when it is asked for them.
        return dict.values(value)
    return attributes_inside(value).values()


def attributes_inside(value: Any) -> dict[str, Any]:
    """Collect the attributes of an object of a user's; none of a module, a class or a function."""
    held = {} if isinstance(value, OPAQUE) else getattr(value, "__dict__", {})
    return held if type(held) is dict else {}


def some_models(module: torch.nn.Module, start: int, length: int) -> dict[int, ModelTensor]:
    """Collect what is left in a module for models `start` to `start + length` alone, by identity."""
    return {id(left): ModelTensor(left.value.detach().narrow(0, start, length)) for left in left_in(module)}


def one_model(module: torch.nn.Module, index: int) -> dict[int, torch.Tensor]:
    """Collect what is left in a module for model `index`, as ordinary tensors, by identity."""
    return {id(left): left.value.detach()[index].clone() for left in left_in(module)}


def value_of_model(value: Any, index: int, memo: dict[int, Any]) -> Any:
    """Copy an attribute for model `index`: of tensors of all models it gets its own, and none has a history."""
    for tensor in tensors_in(value):
        own = tensor.value[index] if type(tensor) is ModelTensor else tensor
        memo[id(tensor)] = own.detach().clone()
    return copied(value, memo)


def value_in_array_of_one(value: Any, modules: Iterable[torch.nn.Module]) -> Any:
    """Copy an attribute of a single model for an array of it alone, where its tensors are of each model, but for sparse
    ones; not the `modules` in it."""
    tensors = (tensor for tensor in tensors_in(value) if type(tensor) is torch.Tensor)
    found = [tensor for tensor in tensors if tensor.layout == torch.strided]
    if not found:
        return value
    memo: dict[int, Any] = {id(module): module for module in modules}
    return copied(value, memo | {id(tensor): ModelTensor(tensor.detach()[None]) for tensor in found})


def give_attributes(source: torch.nn.Module, target: torch.nn.Module, names: Iterable[str], index: int = 0) -> None:
    """Copy the attributes `names` of model `index` in `source` to `target`, a module with the same parts."""
    memo = counterparts(source, target)
    held = vars(source)
    vars(target).update({name: value_of_model(held[name], index, memo) for name in names if name in held})


def choose_models(modules: Iterable[torch.nn.Module], slots: Sequence[int | None]) -> None:
    """Let what is left in modules be that of the models in `slots`; a new one, None, is like the first."""
    rows = [0 if slot is None else slot for slot in slots]
    found = {id(left): left for module in modules for left in left_in(module)}  # modules may share an object
    for left in found.values():
        left.become(left.value.detach()[torch.tensor(rows, device=left.device)])


def joined(parts: Sequence[Any]) -> Any:
    """Join what shards, in order, have left under one name; None if that is no tensor."""
    if all(type(part) is ModelTensor for part in parts):
        return ModelTensor(torch.cat([part.value.detach() for part in parts]))
    if type(parts[0]) is torch.Tensor and type(parts[-1]) is torch.Tensor:
        return parts[0].detach()
    return None


def joined_inside(parts: Sequence[Any]) -> Any:
    """Join the containers that shards, in order, have under one name: equal ones but for tensors of their models.

    Raises:
        NotJoined: they differ in something else.
    """
    first = parts[0]
    if any(type(part) is not type(first) for part in parts):
        raise NotJoined
    if type(first) is ModelTensor:
        return joined(parts)
    if isinstance(first, torch.Tensor):  # made of nothing that the models have of their own
        if all(part.shape == first.shape and torch.equal(part, first) for part in parts):
            return first.detach()
        raise NotJoined
    if isinstance(first, PLAIN_VALUES) and all(part == first for part in parts):
        return first
    if type(first) in _LISTS and len({len(part) for part in parts}) == 1:
        made = [joined_inside(own) for own in zip(*parts, strict=True)]
        return collections.deque(made, first.maxlen) if type(first) is collections.deque else type(first)(made)
    if type(first) is dict and all(list(part) == list(first) for part in parts):
        return {key: joined_inside([part[key] for part in parts]) for key in first}
    held = [attributes_inside(part) for part in parts]
    if isinstance(first, (dict, set)) or not held[0] or any(own.keys() != held[0].keys() for own in held):
        raise NotJoined
    made = copy.copy(first)
    vars(made).update({name: joined_inside([own[name] for own in held]) for name in held[0]})
    return made


_DEEP_PICTURES = 64  # containers and objects in one another that are looked into
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
        name: _picture(value, known, _DEEP_PICTURES)
        for name, value in vars(module).items()
        if may_change_in_place(name, value)
    }


def picture(value: Any) -> Any:
    """Picture one value."""
    return _picture(value, {}, _DEEP_PICTURES)


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
        return len(value), [_picture(part, known, depth - 1) for part, _ in zip(value, range(_MANY), strict=False)]
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
