# SPDX-License-Identifier: MIT
"""Models of an array: one as an ordinary module, some as an array that shares their storage; walks over the modules."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from ..nn.array_module import ArrayModule
from ..nn.random_streams import FUNCTION_STREAM
from ..nn.sharing import held_by
from ..ops.torch_on_arrays import forget
from .code.epilogue_fusion import Sequential
from .code.lent_parameters import put_at
from .code.own_values import INTERNAL, bare_class, class_of_its_own, is_fused, own_attributes
from .hooks import FORWARD_HOOKS, bind_hooks, counterparts
from .left_tensors import give_to_model, narrow_settings, one_model, settings_of, some_models, value_in_array_of_one
from .module_copies import copied as deep_copy
from .state import give_back_sparse, tie

_TORCHS_WALK = torch.nn.Module.named_modules


def modules_below(root: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """List `root` and all modules in it, each once and with its name, in the order of `named_modules`.

    A class with a `named_modules` of its own is asked for its part.
    """
    found: list[tuple[str, torch.nn.Module]] = [("", root)]
    _add_children(root, "", {root}, found)
    return found


def tensors_below(root: torch.nn.Module, registry: str) -> list[tuple[str, torch.Tensor]]:
    """List the tensors in `registry`, `_parameters` or `_buffers`, of `root` and all modules in it, each once and with
    its name, in the order of `named_parameters`."""
    found: list[tuple[str, torch.Tensor]] = []
    seen: set[int] = set()
    for path, module in modules_below(root):
        for name, tensor in getattr(module, registry).items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found.append((f"{path}.{name}" if path else name, tensor))
    return found


def tensors_of_each(root: torch.nn.Module) -> list[tuple[str, torch.Tensor, str]]:
    """List every tensor of a model, or of an array that has a dimension for the models: name, tensor, and `parameter`
    or `buffer`; one with several names under each."""
    found: list[tuple[str, torch.Tensor, str]] = []
    for path, module in modules_below(root):
        shared = getattr(module, "shared_buffers", ())
        for kind, held in (("parameter", module._parameters), ("buffer", module._buffers)):
            for name, value in held.items():
                if value is not None and name not in shared:
                    found.append((f"{path}.{name}" if path else name, value, kind))
    return found


def paths_of(root: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """List `root` and the modules below it, each once and with its name; not the parts of array layers."""
    found: list[tuple[str, torch.nn.Module]] = [("", root)]
    if not isinstance(root, ArrayModule):
        _add_children(root, "", {root}, found, into_layers=False)
    return found


def parts_of(root: torch.nn.Module) -> list[torch.nn.Module]:
    """List the modules of `paths_of`."""
    return [module for _, module in paths_of(root)]


def _add_children(
    module: torch.nn.Module,
    prefix: str,
    seen: set[torch.nn.Module],
    found: list[tuple[str, torch.nn.Module]],
    into_layers: bool = True,
) -> None:
    for name, child in module._modules.items():
        if child is None or child in seen:
            continue
        if into_layers and type(child).named_modules is not _TORCHS_WALK:
            found += child.named_modules(seen, prefix + name)
            continue
        seen.add(child)
        found.append((prefix + name, child))
        if child._modules and (into_layers or not isinstance(child, ArrayModule)):
            _add_children(child, f"{prefix}{name}.", seen, found, into_layers)


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
    part: torch.nn.Module = deep_copy(array, memo)
    part.__dict__.pop("_plain", None)
    part.__dict__.pop("_fused_choice", None)
    held = []  # no other object may get an id of what is copied
    for module in tree(array):
        parts = module.__dict__.get("_fused_parts")
        if parts is not None and parts.own:
            held.append([parts.attributes(index, module) for index in range(start, start + length)])
            memo[id(module)]._fused_parts = type(parts)(memo[id(module)], deep_copy(held[-1], memo))
    for module in tree(part):
        set_width(module, length)
        found = settings_of(module)
        if isinstance(module, ArrayModule):
            for name in module.per_model_lists:
                setattr(module, name, getattr(module, name)[start : start + length])
        if found:
            narrow_settings(module, found, range(start, start + length))
        parts = module.__dict__.get("_fused_parts")
        withheld = module.__dict__.get("_fused_withheld")
        if parts is not None and length == 1 and withheld:  # the part has what this model has of its own
            own, modules = parts.attributes(0, module), list(module.modules())
            own.update({name: value_in_array_of_one(own[name], modules) for name in withheld & own.keys()})
            module._fused_restore(own)  # type: ignore[operator]
    return part


def model_of(root: torch.nn.Module, index: int, copied: bool = True) -> torch.nn.Module:
    """Copy model `index` of an array into an ordinary module of the user's own class.

    Args:
        copied: False leaves tensors that all models share in the array's memory.
    """
    known = {} if copied else _in_memory_of(root)
    model = _model_of(root, index, known)
    if not copied:
        share(model, root, known)
    return model


@torch.no_grad()
def _in_memory_of(root: torch.nn.Module) -> dict[int, torch.Tensor]:
    """View, by id, the tensors that all models of `root` share as those of one."""
    known: dict[int, torch.Tensor] = {}
    for module in root.modules():
        for registry, _, value in held_by(module):
            row = value.detach()[0]
            known[id(value)] = torch.nn.Parameter(row, False) if registry is module._parameters else row
    return known


@torch.no_grad()
def share(model: torch.nn.Module, root: torch.nn.Module, known: dict[int, torch.Tensor]) -> None:
    """Give a model the tensors `known`, by id of the array's, that all models of `root` share."""
    for path, module in root.named_modules():
        for registry, name, value in held_by(module):
            names = "_parameters" if registry is module._parameters else "_buffers"
            owner = model.get_submodule(path)
            if name in getattr(owner, names):
                put_at(owner, names, name, known[id(value)])


@torch.no_grad()
def models_of(root: torch.nn.Module, B: int) -> list[torch.nn.Module]:
    """Copy all models of an array; what they share there they share again, in memory of their own."""
    known = _in_memory_of(root)
    for value in known.values():
        value.data = value.data.clone(memory_format=torch.contiguous_format)
    models = [_model_of(root, index, known) for index in range(B)]
    for model in models:
        share(model, root, known)
    return models


@torch.no_grad()
def _model_of(root: torch.nn.Module, index: int, known: dict[int, torch.Tensor]) -> torch.nn.Module:
    memo: dict[int, Any] = dict(known)
    for module in parts_of(root):
        if isinstance(module, ArrayModule):
            _copy_layer(module, index, memo)
        else:
            _copy_state(module, index, memo)
    model: torch.nn.Module = deep_copy(root, memo)
    for module in parts_of(root):
        made = memo.get(id(module))
        if made is not None:
            bind_hooks(made, memo)
            give_to_model(module, made, index)
            if isinstance(module, ArrayModule):
                give_extra(module, made, memo)
            else:
                _give_back_class(module, made, index, memo)
    tie(model, [root])
    return model


def _copy_layer(layer: ArrayModule, index: int, memo: dict[int, Any]) -> None:
    """Put model `index`'s layer of torch's into `memo`, with the hooks of the array's."""
    leaf = layer.to_model(index)
    for old, new in counterparts(layer, leaf).items():
        memo.setdefault(old, new)
    memo.update(one_model(layer, index))
    for name in FORWARD_HOOKS:
        hooks = getattr(layer, name)
        memo[id(hooks)] = leaf.__dict__[name] = copy.copy(hooks)  # in the memo for their handles


def give_extra(layer: ArrayModule, copy: torch.nn.Module, memo: dict[int, Any]) -> None:
    """Give a copy of a layer what was set on it, before fuse or later; a list is each copy's own."""
    held = layer.__dict__.get("extra_attributes", {})
    own = {name: value if type(value) is torch.Tensor else deep_copy(value, memo) for name, value in held.items()}
    copy.__dict__.update(own)
    if copy is layer and own:
        copy.__dict__["extra_attributes"] = own


def _copy_state(module: torch.nn.Module, index: int, memo: dict[int, Any]) -> None:
    """Put model `index`'s part of the tensors that `module` itself holds into `memo`."""
    for parameter in module._parameters.values():
        if parameter is not None and id(parameter) not in memo:
            own = parameter.detach()[index].clone()
            memo[id(parameter)] = torch.nn.Parameter(own, requires_grad=parameter.requires_grad)
    for buffer in module._buffers.values():
        if buffer is not None and id(buffer) not in memo:
            memo[id(buffer)] = buffer.detach()[index].clone()
    if is_fused(module):
        memo.update(one_model(module, index))
        memo[id(module._fused_report)] = None
        if module._fused_parts is not None:
            memo[id(module._fused_parts)] = None
        if module._fused_own is not None:
            memo[id(module._fused_own)] = None


def _give_back_class(module: torch.nn.Module, made: Any, index: int, memo: dict[int, Any]) -> None:
    """Make `made`, the copy of an array's `module`, one of the user's own class with model `index`'s attributes."""
    if type(module) is Sequential:
        made.__class__ = torch.nn.Sequential
    if is_fused(module):
        made.__class__ = class_of_its_own(bare_class(module), made)
        forget(made)
        give_back_sparse(module, made)
        for name in INTERNAL:
            made.__dict__.pop(name, None)
        parts: Any = module._fused_parts
        if parts is not None:
            made.__dict__.update(parts.attributes(index, made))
        made.__dict__.update(own_attributes(module, index, memo))
    made._buffers.pop(FUNCTION_STREAM, None)
    made._non_persistent_buffers_set.discard(FUNCTION_STREAM)


def with_dense_gradients(model: torch.nn.Module) -> torch.nn.Module:
    """Let a model's embeddings give dense gradients, the only ones that can be joined with those of other models."""
    for module in model.modules():
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            module.sparse = False
    return model
