# SPDX-License-Identifier: MIT
"""One model of an array as an ordinary torch module."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from ..nn.array_module import ArrayModule
from ..nn.random_streams import FUNCTION_STREAM
from ..ops.torch_clip import forget
from .code.fused_attributes import INTERNAL, bare_class, is_fused
from .code.sequential import Sequential
from .hooks import FORWARD_HOOKS, bind_hooks
from .rebound import plain
from .ties import tie


def parts_of(root: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield `root` and the modules below it, each once; not the parts of array layers."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield module
        if not isinstance(module, ArrayModule):
            waiting += [child for child in reversed(module._modules.values()) if child is not None]


@torch.no_grad()
def model_of(root: torch.nn.Module, index: int) -> torch.nn.Module:
    """Copy model `index` of an array into an ordinary module of the user's own class."""
    memo: dict[int, Any] = {}
    for module in parts_of(root):
        if isinstance(module, ArrayModule):
            leaf = memo[id(module)] = module.to_model(index)
            leaf.__dict__.update(module.__dict__.get("extra_attributes", {}))
            for name in FORWARD_HOOKS:
                hooks = getattr(module, name)
                memo[id(hooks)] = leaf.__dict__[name] = copy.copy(hooks)  # in the memo for their handles
            continue
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in memo:
                own = parameter.detach()[index].clone()
                memo[id(parameter)] = torch.nn.Parameter(own, requires_grad=parameter.requires_grad)
        for buffer in module._buffers.values():
            if buffer is not None and id(buffer) not in memo:
                memo[id(buffer)] = buffer.detach()[index].clone()
        if is_fused(module):
            memo[id(module._fused_report)] = None
            if module._fused_parts is not None:
                memo[id(module._fused_parts)] = None
    model: torch.nn.Module = copy.deepcopy(root, memo)
    for module in parts_of(root):
        made = memo.get(id(module))
        if made is None:
            continue
        bind_hooks(made, memo)
        if isinstance(module, ArrayModule):
            continue
        if type(module) is Sequential:
            made.__class__ = torch.nn.Sequential
        if is_fused(module):
            made.__class__ = bare_class(module)
            forget(made)
            for name in INTERNAL:
                made.__dict__.pop(name, None)
            parts: Any = module._fused_parts
            if parts is not None:
                made.__dict__.update(parts.attributes(index, made))
        made._buffers.pop(FUNCTION_STREAM, None)
        made._non_persistent_buffers_set.discard(FUNCTION_STREAM)
    tie(model, [root])
    plain(model)
    return model


def with_dense_gradients(model: torch.nn.Module) -> torch.nn.Module:
    """Let a model's embeddings give dense gradients, the only ones that can be joined with those of other models."""
    for module in model.modules():
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            module.sparse = False
    return model
