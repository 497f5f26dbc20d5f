# SPDX-License-Identifier: MIT
"""Functions, and references, by which a part of a model gets at modules and tensors that are not in it."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from ..nn.sharing import SharedState
from .code.fused_attributes import NO_ATTRIBUTES, PLAIN_VALUES
from .comparison import PROXIES, referred
from .left_tensors import parts_inside
from .module_copies import held_by, tensors_and_modules_in

_MANY = 64  # functions in a collection that are looked for


def refuse_what_cannot_follow(module: torch.nn.Module, copies: Collection[int], registered: Mapping[int, str]) -> None:
    """Refuse functions of `module` that hold something of the models, `registered` by id, of which there are no
    `copies`, by id.

    Raises:
        InvalidArgument: naming the function, and what it holds.
    """
    for name, function in vars(module).items():
        for held in tensors_and_modules_in(function) if type(function) is types.FunctionType else ():
            if id(held) in registered and not (isinstance(held, torch.nn.Module) and id(held) in copies):
                what = registered[id(held)] or "the whole model"
                raise InvalidArgument(
                    f"{type(module).__name__}.{name} is a function that holds {what} of the model that was copied, and "
                    "would keep using it: let it hold a module that has it, or make it a method"
                )


def holds_module(value: Any) -> bool:
    """Return True for a function, method or partial that holds a module, and for a short collection of such."""
    kind = type(value)
    if kind in (types.FunctionType, types.MethodType, functools.partial):
        return any(isinstance(one, torch.nn.Module) for one in tensors_and_modules_in(value))
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


def arrays_in(value: Any, seen: set[int] | None = None) -> Iterator[torch.nn.Module]:
    """Yield arrays, and modules of arrays, to which a value refers, also weakly."""
    seen = set() if seen is None else seen
    if type(value) in PROXIES or isinstance(value, weakref.ref):
        value = referred(value) if type(value) in PROXIES else value()
    if isinstance(value, torch.nn.Module):
        if isinstance(value, SharedState):
            yield value
    elif id(value) not in seen and not isinstance(value, (*PLAIN_VALUES, torch.Tensor)):
        seen.add(id(value))
        for part in held_by(value) or parts_inside(value):
            yield from arrays_in(part, seen)
