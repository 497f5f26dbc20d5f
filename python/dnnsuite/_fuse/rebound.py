# SPDX-License-Identifier: MIT
"""Functions, and references, by which a part of a model gets at modules and tensors that are not in it."""

from __future__ import annotations

import functools
import gc
import types
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from .._state import dictionary_of
from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule, made_of_others
from ..nn.sharing import SharedState
from .code.late_draws import names_in_code
from .code.own_values import NO_ATTRIBUTES, PLAIN_VALUES, is_fused
from .comparison import PROXIES, referred
from .hooks import FORWARD_HOOKS
from .left_tensors import OPAQUE, attributes_inside, parts_in_place, parts_inside
from .module_copies import all_in, held_by

_IN_C = frozenset(("builtins", "itertools", "operator"))  # whose iterators, views and getters hold what they lead to
_MANY = 64  # functions in a collection that are looked for


def refuse_what_cannot_follow(module: torch.nn.Module, copies: Collection[int], registered: Mapping[int, str]) -> None:
    """Refuse functions of `module` that hold something of the models, `registered` by id, of which there are no
    `copies`, by id.

    Raises:
        InvalidArgument: naming the function, and what it holds.
    """
    for name, function in vars(module).items():
        for held in all_in(function) if type(function) is types.FunctionType else ():
            if id(held) in registered and not (isinstance(held, torch.nn.Module) and id(held) in copies):
                what = registered[id(held)] or "the whole model"
                raise InvalidArgument(
                    f"{type(module).__name__}.{name} is a function that holds {what} of the model that was copied, and "
                    "would keep using it: let it hold a module that has it, or make it a method"
                )


class HeldTensors:
    """Parameters and buffers of a model that its modules hold in other places than those that torch has for them.

    `registered` names them by id, and `stored` are names that code sets.
    """

    def __init__(self, model: torch.nn.Module, registered: Mapping[int, str], stored: Collection[str]) -> None:
        self._registered = registered
        parts = list(model.modules())
        self._set = {id(b) for part in parts for name, b in part._buffers.items() if name in stored}
        self._memory = {place: registered[id(p)] for p in model.parameters() if (place := _memory_of(p))}

    def read_in(self, module: torch.nn.Module, names: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield those in attributes of `module` with one of the `names`, by which code may read them.

        Raises:
            InvalidArgument: for one that a model of an array could not have there.
        """
        remade = made_of_others(module)  # before each forward, whatever they are now
        of_torch = type(module).__module__.startswith("torch.nn.modules.")
        for name, value in vars(module).items():
            if name in FORWARD_HOOKS:
                for tensor, _ in tensors_held(value):
                    self._check(f"a forward hook of a {type(module).__name__}", tensor, False)
            elif name in names and name not in (*NO_ATTRIBUTES, *remade) and not (of_torch and name.startswith("_")):
                for tensor, in_place in tensors_held(value):
                    if self._check(f"{type(module).__name__}.{name}", tensor, in_place):
                        yield name, tensor

    def _check(self, where: str, tensor: torch.Tensor, in_place: bool) -> bool:
        """Return True for a tensor of the model that models which run one by one can have there."""
        place = self._registered.get(id(tensor))
        if place is None:
            place, what = self._memory.get(_memory_of(tensor), ""), "the memory of "
            in_place = False
        else:
            what, in_place = "", in_place and id(tensor) not in self._set
        if place and not in_place:
            raise InvalidArgument(
                f"{where} holds {what}{place} of the model that was copied, and would keep using it: read it from its "
                "module when it is needed, or hold it in a list, a dictionary or a plain object"
            )
        return bool(place)


def refuse_held_by(module: torch.nn.Module, name: str, value: Any) -> None:
    """Refuse to set an attribute of a module of an array that code reads to what leads to parameters or buffers."""
    if isinstance(value, (*PLAIN_VALUES, torch.Tensor, torch.nn.Module)):
        return
    held = [tensor for tensor, _ in tensors_held(value)]
    buffers = set(map(id, module.buffers())) if held else set()
    found = any(type(one) is torch.nn.Parameter or id(one) in buffers for one in held)
    if found and name in names_in_code(module.modules()).read:
        raise InvalidArgument(
            f"{name} would hold tensors of all models where code of one reads it: read them from their modules, or set "
            "it in the models and fuse them again"
        )


def refuse_held_in(module: torch.nn.Module) -> None:
    """Refuse parameters or buffers that were put into a list or an object that code of all models reads, in `module`
    and its parts. Models that run one by one have their own there."""
    if is_fused(module):
        if module.__dict__["_fused_report"].reason:
            return
        for name, value in list(vars(module).items()):
            if type(value) not in PLAIN_VALUES and name not in NO_ATTRIBUTES and not name.startswith("_fused_"):
                refuse_held_by(module, name, value)
    for part in module.children():
        refuse_held_in(part)


def _memory_of(tensor: torch.Tensor) -> Any:
    """Say where the memory of a parameter, or of a view of one, begins; None for none."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return None
    return (tensor.device, tensor.untyped_storage().data_ptr()) if tensor.numel() and not tensor.is_meta else None


def tensors_held(
    value: Any, in_place: bool = True, seen: set[int] | None = None
) -> Iterator[tuple[torch.Tensor, bool]]:
    """Yield the tensors that a value is or leads to, not through modules, and whether those are `in_place`: such that
    others can be put there, as plain models are given theirs in each call."""
    seen = set() if seen is None else seen
    if isinstance(value, weakref.ref):
        value, in_place = value(), in_place and type(value) is weakref.ref and isinstance(value(), torch.Tensor)
    if isinstance(value, torch.Tensor):
        yield value, in_place
    if id(value) in seen or isinstance(value, (*PLAIN_VALUES, torch.Tensor, torch.nn.Module)):
        return
    seen.add(id(value))
    there = parts_in_place(value)
    elsewhere: list[Any] = []
    if isinstance(value, dict):
        elsewhere += dict.keys(value)
    if isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
        elsewhere.append(value.__self__)
    elif isinstance(value, np.ndarray):
        elsewhere.append(value.base)
    else:
        elsewhere += () if there else held_by(value)
        own = dictionary_of(value)
        elsewhere += [p for n, p in attributes_inside(value).items() if there is not own or n not in own]
        if not there and not isinstance(value, OPAQUE) and type(value).__module__ in _IN_C:
            elsewhere += gc.get_referents(value)
    for part in there.values() if isinstance(there, dict) else there:
        yield from tensors_held(part, in_place, seen)
    for part in elsewhere:
        yield from tensors_held(part, False, seen)


def holds_module(value: Any) -> bool:
    """Return True for a function, method or partial that holds a module, and for a short collection of such."""
    kind = type(value)
    if kind in (types.FunctionType, types.MethodType, functools.partial):
        return any(isinstance(one, torch.nn.Module) for one in all_in(value))
    if kind in (list, tuple, dict) and len(value) <= _MANY:
        return any(map(holds_module, held_by(value)))
    return False


def refers_outside(module: torch.nn.Module) -> bool:
    """Return True if a module of an array, or one in it, refers to a module of the array that is not in it, such as its
    parent: it cannot run model by model without that."""
    inside = {id(part) for part in module.modules()}
    return any(
        id(found) not in inside
        for part in module.modules()
        if not isinstance(part, ArrayModule)
        for name, value in vars(part).items()
        if name not in NO_ATTRIBUTES and not name.startswith("_fused_")
        for found in arrays_in(value)
    )


def arrays_in(value: Any) -> Iterator[Any]:
    """Yield arrays, and modules of arrays, to which a value refers, also weakly."""
    return (one for one in all_in(value, _led_to) if type(one) not in PROXIES and isinstance(one, SharedState))


def _led_to(value: Any) -> Iterable[Any]:
    if type(value) in PROXIES or isinstance(value, weakref.ref):
        return (referred(value) if type(value) in PROXIES else value(),)
    return () if isinstance(value, PLAIN_VALUES) else held_by(value) or parts_inside(value)
