# SPDX-License-Identifier: MIT
"""State of models beside parameters and buffers: which attributes are a user's state, tensors that code of all models
has left in them, and settings of layers that code of some models has set, such as an `eps`.

Whatever takes some models of an array, or one, or adds some, takes theirs of these tensors too: each has all models'.
An array's layer has one value of a setting for all models, so those of each model are kept beside it while that value
stays what it is.
"""

from __future__ import annotations

import collections
import copy
import logging
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any

import torch

from .._state import STANDS_FOR, Watch, dictionary_of, hides_state, slots_of
from ..nn.array_module import ArrayModule
from ..nn.model_tensor import ModelTensor
from .code.own_values import NO_ATTRIBUTES, PLAIN_VALUES
from .comparison import same
from .hooks import counterparts
from .module_copies import all_in, copied

_NAME = "_fused_set"  # attribute of a layer: by name, the layer's value and one of each model


def value_of_all(layer: Any, name: str) -> Any:
    """Return an array's setting of a layer; a list where it has one for each model."""
    if isinstance(layer, ArrayModule) and name != "training":
        arguments = layer.arguments_of(layer)
        if name in arguments:
            return arguments[name]
    return vars(layer).get(name)


def settings_of(layer: torch.nn.Module) -> dict[str, list[Any]]:
    """Collect what code of the models has set in a layer: by name one value of each."""
    held = vars(layer).get(_NAME, {})
    return {name: own for name, (known, own) in held.items() if value_of_all(layer, name) == known}


def keep_settings(layer: torch.nn.Module, found: Mapping[str, Sequence[Any]]) -> None:
    """Keep what code of the models has set in a layer beside what is known of others."""
    if found or _NAME in vars(layer):
        kept = {**settings_of(layer), **found}
        vars(layer)[_NAME] = {name: (value_of_all(layer, name), list(own)) for name, own in kept.items()}


def narrow_settings(layer: torch.nn.Module, found: Mapping[str, Sequence[Any]], models: Sequence[int | None]) -> None:
    """Keep of what was `found` in a layer what is of these `models`; a new one, None, has the layer's own value."""
    vars(layer).pop(_NAME, None)
    each = {name: value_of_all(layer, name) for name in found}
    own = {
        name: [_of_model(each[name], place) if model is None else values[model] for place, model in enumerate(models)]
        for name, values in found.items()
    }
    keep_settings(layer, own)


def join_settings(layer: torch.nn.Module, parts: Sequence[tuple[torch.nn.Module, int]]) -> None:
    """Keep in an array's layer what code of models in its `parts` has set: the layer of each, and how many models it
    has."""
    held = [settings_of(part) for part, _ in parts]
    names = dict.fromkeys(name for own in held for name in own)
    found: dict[str, list[Any]] = {name: [] for name in names}
    for (part, models), own in zip(parts, held, strict=True):
        for name in names:
            one = value_of_all(part, name) if name not in own else own[name]
            found[name] += [_of_model(one, index) for index in range(models)]
    keep_settings(layer, found)


def give_to_model(layer: torch.nn.Module, model: torch.nn.Module, index: int) -> None:
    """Set in the layer of model `index` what its code has set."""
    vars(model).pop(_NAME, None)
    for name, own in settings_of(layer).items():
        if name == "training":
            model.train(own[index])
        else:
            vars(model)[name] = own[index]


def _of_model(value: Any, index: int) -> Any:
    return value[index] if isinstance(value, list) else value


_LISTS = (list, tuple, collections.deque)
_PLAIN_TYPES = frozenset(PLAIN_VALUES)
#: Of these no content is looked into. Loggers belong to the process, and hold all others of it; operators never change;
#: a number that is followed holds what records it.
OPAQUE = (
    *(torch.SymInt, torch.SymFloat, torch.SymBool),
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
    return apart or bool(settings_of(module)) or any(True for _ in left_in(module))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield a tensor, or those in a container or an object, and in such in there."""
    return (one for one in all_in(value, _no_numbers) if isinstance(one, torch.Tensor))


def _no_numbers(value: Any) -> list[Any]:
    return [part for part in parts_inside(value) if type(part) not in _PLAIN_TYPES]


def parts_inside(value: Any) -> Iterable[Any]:
    """List what a container or an object of a user's holds."""
    if isinstance(value, (*_LISTS, set, frozenset)):
        return value
    inside = attributes_inside(value).values()
    # Of a dictionary of the models' code its values, whatever that code does when it is asked for them.
    return [*dict.values(value), *inside] if isinstance(value, dict) else inside


def parts_in_place(value: Any) -> Any:
    """Return the container or the attributes of a plain object that have a value's parts; an empty one for others."""
    if isinstance(value, (*_LISTS, dict, set, frozenset)):
        return value
    return () if isinstance(value, OPAQUE) else dictionary_of(value) or ()


def attributes_inside(value: Any) -> dict[str, Any]:
    """Collect the attributes of an object of a user's, also those in slots; none of a module, a class or a function."""
    if isinstance(value, OPAQUE):
        return {}
    held = dictionary_of(value) or {}
    of_slots = {name: getattr(value, name) for name in slots_of(type(value)) if hasattr(value, name)}
    return held | of_slots if of_slots else held


def some_models(module: torch.nn.Module, start: int, length: int) -> dict[int, ModelTensor]:
    """Collect what is left in a module for models `start` to `start + length` alone, by identity."""
    return {id(left): ModelTensor(left.value.detach().narrow(0, start, length)) for left in left_in(module)}


def one_model(module: torch.nn.Module, index: int) -> dict[int, torch.Tensor]:
    """Collect what is left in a module for model `index`, as ordinary tensors, by identity."""
    return {id(left): left.value.detach()[index].clone() for left in left_in(module)}


def value_of_model(value: Any, index: int, memo: dict[int, Any]) -> Any:
    """Copy an attribute for model `index`: of tensors of all models it gets its own, and none has a history."""
    for tensor in tensors_in(value):
        if id(tensor) in memo:
            continue
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
    kind: type = type(first)
    if hides_state(kind) or not held[0] or any(own.keys() != held[0].keys() for own in held):
        raise NotJoined
    made = copy.copy(first)
    for name in held[0]:
        object.__setattr__(made, name, joined_inside([own[name] for own in held]))
    return made


STANDS_FOR[ModelTensor] = lambda tensor: tensor.value


def may_change_in_place(name: str, value: Any) -> bool:
    """Return True for an attribute of a user's module that a forward may change without assigning it."""
    return is_users_state(name, value) and type(value) not in _PLAIN_TYPES and not isinstance(value, PLAIN_VALUES)


def is_users_state(name: str, value: Any) -> bool:
    """Return True for an attribute that is a user's and no parameter, module or function."""
    return not (
        type(value) is torch.nn.Parameter
        or name in NO_ATTRIBUTES
        or name.startswith("_fused_")
        or isinstance(value, (*OPAQUE, torch.Size))
    )


def unlike(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> set[str]:
    """Name the attributes of the user's in `theirs`, of a model, that `mine` do not have, or have otherwise."""
    state = {name: value for name, value in theirs.items() if is_users_state(name, value)}
    return {name for name, value in state.items() if not (name in mine and same(mine[name], value))}


class WatchedModels:
    """Attributes of `modules`, the same one of each model: those that `wanted(name, value)` chooses."""

    def __init__(self, modules: Sequence[torch.nn.Module], wanted: Callable[[str, Any], bool]) -> None:
        self._wanted = wanted
        self._look(modules)

    def _look(self, modules: Sequence[torch.nn.Module]) -> None:
        self._modules, self._watches = modules, [Watch(vars(one), self._wanted) for one in modules]

    def changed(self, modules: Sequence[torch.nn.Module], like: Sequence[torch.nn.Module]) -> list[set[str]]:
        """Name what the code of each model has changed since the last call; models that were made since then began
        with what their `like` have."""
        pairs = zip(self._watches, self._modules, strict=True)
        found = [{*watch.changed(vars(one)), *watch.unsaid()} for watch, one in pairs]
        if len(modules) == len(self._modules) and all(map(is_, modules, self._modules)):
            return found
        self._look(modules)
        before = set[str]().union(*found)
        return [
            before | {name for name in unlike(vars(first), vars(one)) if self._wanted(name, vars(one)[name])}
            for first, one in zip(like, modules, strict=True)
        ]
