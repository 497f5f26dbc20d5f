# SPDX-License-Identifier: MIT
"""Slices: some models of an array as an array of its own that shares their storage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..nn.array_module import ArrayModule
from .code.fused_attributes import ModuleCoverage
from .layer_settings import narrow_settings, settings_of
from .left_tensors import some_models, value_in_array_of_one
from .module_copies import copied


def tree(array: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield all modules of an array, and its root, which holds them."""
    yield from array.modules()
    if "_root" in array.__dict__:
        yield array.__dict__["_root"]


def views(array: torch.nn.Module, start: int, length: int) -> dict[int, torch.Tensor]:
    """View models `start` to `start + length` of every tensor of `array` that has a dimension for them, by identity.

    `.data` and not `.detach()`: autograd must not see another part's update as a change of this one's
    tensors, and only `.data` starts a version counter of its own.
    """
    found: dict[int, torch.Tensor] = {}
    for module in tree(array):
        shared = module.shared_buffers if isinstance(module, ArrayModule) else ()
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in found:
                part = parameter.data.narrow(0, start, length)
                found[id(parameter)] = torch.nn.Parameter(part, requires_grad=parameter.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in shared:
                found[id(buffer)] = buffer.data.narrow(0, start, length)
    return found


def set_width(module: torch.nn.Module, B: int) -> None:
    """Set the number of models of an array, or of a module of one; a user's own attribute B stays what it is."""
    if "_fused_B" in module.__dict__:
        module.__dict__["_fused_B"] = B
    elif isinstance(module, ArrayModule) or "_root" in module.__dict__:
        module.__dict__["B"] = B


def narrow(array: torch.nn.Module, start: int, length: int, known: dict[int, torch.Tensor] | None = None) -> Any:
    """Make an array of models `start` to `start + length` of `array`; `known` are its `views`, if at hand."""
    memo: dict[int, Any] = dict(views(array, start, length) if known is None else known)
    for module in tree(array):
        memo.update(some_models(module, start, length))
        parts = module.__dict__.get("_fused_parts")
        if parts is not None:
            memo[id(parts)] = None  # made again, for the models that are left
        report = module.__dict__.get("_fused_report")
        if report is not None:
            memo[id(report)] = report  # what a part of the array finds out is the array's
        own = module.__dict__.get("_fused_own")
        if own is not None:
            memo[id(own)] = own[start : start + length]
    memo[id(array.__dict__.get("_fused_choice"))] = None
    part: torch.nn.Module = copied(array, memo)
    part.__dict__.pop("_plain", None)
    part.__dict__.pop("_fused_choice", None)
    held = []  # no other object may get an id of what is copied
    for module in tree(array):
        parts = module.__dict__.get("_fused_parts")
        if parts is not None and parts.own:
            held.append([parts.attributes(index, module) for index in range(start, start + length)])
            memo[id(module)]._fused_parts = type(parts)(memo[id(module)], copied(held[-1], memo))
    for module in tree(part):
        set_width(module, length)
        found = settings_of(module)
        if isinstance(module, ArrayModule):
            for name in module.per_model_lists:
                setattr(module, name, getattr(module, name)[start : start + length])
        if found:
            narrow_settings(module, found, range(start, start + length))
        parts = module.__dict__.get("_fused_parts")
        if parts is not None and length == 1 and module.__dict__["_fused_withheld"]:
            _be_its_model(module, parts)
    return part


def _be_its_model(module: Any, parts: Any) -> None:
    """Give a part of an array of one the attributes that this model has of its own."""
    own, modules = parts.attributes(0, module), list(module.modules())
    own.update({name: value_in_array_of_one(own[name], modules) for name in module._fused_withheld & own.keys()})
    module._fused_report = ModuleCoverage()
    module._fused_restore(own)
