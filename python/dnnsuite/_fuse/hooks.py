# SPDX-License-Identifier: MIT
"""Hooks of the models that become an array: which are kept, and which are refused."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from .._torch import has_gradient_hook
from ..errors import InvalidArgument
from .comparison import same
from .module_copies import copied, held_by

FORWARD_HOOKS = [
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
]  # fmt: skip
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
HOOKS = (*FORWARD_HOOKS, *_BACKWARD_HOOKS)
_of_forwards: set[int] = set()  # ids of hooks that forwards have registered: those run model by model


def hooked_inside(module: torch.nn.Module, called: Sequence[str] = ()) -> bool:
    """Return True if a part has a forward hook, which a stack of layers fused whole would not call; the parts `called`
    it does call."""
    if isinstance(module, torch.nn.MultiheadAttention):  # it does not call its one part either
        return False
    through = {part for name in called for part in module.get_submodule(name).modules()}
    parts = (part for part in module.modules() if part is not module and part not in through)
    return any(getattr(part, name) for part in parts for name in FORWARD_HOOKS)


def refuse_other_hooks(models: Sequence[torch.nn.Module], where: str) -> None:
    """Raise InvalidArgument if the models have different forward hooks."""
    first = models[0]
    for index, model in enumerate(models):
        for name in ("_forward_pre_hooks", "_forward_hooks"):
            mine, other = (list(getattr(m, name).values()) for m in (first, model))
            if len(mine) != len(other) or not all(map(same, mine, other)):
                raise InvalidArgument(
                    f"models 0 and {index} differ at {where}: they have other forward hooks; give all models the same, "
                    "or register it on the array's module after fuse"
                )


def refuse_backward_hooks(models: Sequence[torch.nn.Module], where: str) -> None:
    """Raise InvalidArgument if a model has a backward hook: it would see the gradients of all models; or if a parameter
    has a hook: copies of parameters have none, so it would not be called."""
    for index, model in enumerate(models):
        if any(getattr(model, name, None) for name in _BACKWARD_HOOKS):
            raise InvalidArgument(
                f"model {index} has a backward hook at {where}, which would see the gradients of all models; remove it "
                "before fuse and look at array.parameters() instead"
            )
        for name, parameter in model._parameters.items():
            if parameter is not None and has_gradient_hook(parameter):
                raise InvalidArgument(
                    f"{name} at {where} of model {index} has a gradient hook, which the array's parameter would lose: "
                    "register it on the array's after fuse, for the gradients of all models, [B, ...]"
                )


def hooks_in(module: torch.nn.Module) -> list[dict[int, Any]]:
    """List the dictionaries of a module's hooks, by kind."""
    return [getattr(module, name) for name in HOOKS]


def has_backward_hook(module: torch.nn.Module) -> bool:
    """Return True if a module has a backward hook that no forward of its models has registered."""
    return not _of_forwards.issuperset((*module._backward_hooks, *module._backward_pre_hooks))


def counterparts(source: torch.nn.Module, target: torch.nn.Module) -> dict[int, Any]:
    """Map, by id, the modules in `source`, the dictionaries of their hooks, to which handles refer, parameters and
    buffers to those in `target`."""
    parts = dict(target.named_modules())
    pairs = [(part, parts[path]) for path, part in source.named_modules() if path in parts]
    found: dict[int, Any] = {id(part): own for part, own in pairs}
    for part, own in pairs:
        found.update((id(old), new) for old, new in zip(hooks_in(part), hooks_in(own), strict=True))
        for mine, theirs in ((part._parameters, own._parameters), (part._buffers, own._buffers)):
            found.update((id(old), theirs[name]) for name, old in mine.items() if old is not None and name in theirs)
    return found


def hooks_so_far() -> int:
    """Return a number that every hook registered later has at least."""
    return int(RemovableHandle.next_id)


def remove_hooks_since(begun: int, root: torch.nn.Module) -> None:
    """Remove the hooks under `root` that a forward has registered since `hooks_so_far` returned `begun`."""
    for module in root.modules():
        for hooks in hooks_in(module):
            for key in [key for key in hooks if key >= begun]:
                del hooks[key]


def take_hooks(
    source: torch.nn.Module,
    target: torch.nn.Module,
    known: Sequence[Mapping[int, Any]] = ({},) * len(HOOKS),
    copies: dict[int, Any] | None = None,
) -> None:
    """Give `target` the hooks that code has registered on `source`, a copy of it, and take away what code has removed
    there of those that were `known`. Functions that hold modules of the source hold those that `copies` has for them,
    by id."""
    for mine, theirs, before in zip(hooks_in(target), hooks_in(source), known, strict=True):
        _of_forwards.update(theirs)
        mine.update({key: _bound(hook, copies or {}) for key, hook in theirs.items() if key not in mine})
        for key in before.keys() - theirs.keys():
            mine.pop(key, None)
    if source._is_full_backward_hook is not None:
        target._is_full_backward_hook = source._is_full_backward_hook


def bind_hooks(layer: torch.nn.Module, copies: dict[int, Any]) -> None:
    """Let hooks of a layer that are methods of a copied module, or functions that hold one, be the copy's; `copies` is
    by the id of the original."""
    for hooks in (layer._forward_hooks, layer._forward_pre_hooks):
        for key, hook in list(hooks.items()):
            hooks[key] = _bound(hook, copies)


def _bound(hook: Any, copies: dict[int, Any]) -> Any:
    return copied(hook, copies) if type(hook) is types.FunctionType or _leads_to(hook, copies) else hook


def _leads_to(hook: Any, copies: dict[int, Any]) -> bool:
    """Return True for a bound method, or a partial function, that holds something of which there is a copy."""
    bound = isinstance(hook, (types.MethodType, functools.partial))
    return id(hook) in copies or (bound and any(_leads_to(part, copies) for part in held_by(hook)))
