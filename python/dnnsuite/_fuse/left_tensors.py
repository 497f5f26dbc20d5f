# SPDX-License-Identifier: MIT
"""Tensors that code of all models has left in attributes, such as a cache of positions: each has all models' values.

Whatever takes some models of an array, or one, or adds some, takes theirs of these tensors too.
"""

from __future__ import annotations

import collections
import copy
import logging
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ..nn.model_tensor import ModelTensor
from .code.fused_attributes import NO_ATTRIBUTES, PLAIN_VALUES
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


def give_attributes(
    source: torch.nn.Module, target: torch.nn.Module, names: Iterable[str], index: int = 0
) -> None:
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
        return (
            collections.deque(made, first.maxlen) if type(first) is collections.deque else type(first)(made)
        )
    if type(first) is dict and all(list(part) == list(first) for part in parts):
        return {key: joined_inside([part[key] for part in parts]) for key in first}
    held = [attributes_inside(part) for part in parts]
    if isinstance(first, (dict, set)) or not held[0] or any(own.keys() != held[0].keys() for own in held):
        raise NotJoined
    made = copy.copy(first)
    vars(made).update({name: joined_inside([own[name] for own in held]) for name in held[0]})
    return made
