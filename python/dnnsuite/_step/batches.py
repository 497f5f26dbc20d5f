# SPDX-License-Identifier: MIT
"""Copies of batches and hyper-parameters, for steps that run after their caller has gone on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def own_copy(batch: Any, leave: Callable[[torch.Tensor], bool] = lambda tensor: False) -> Any:
    """Copy a batch: same structure, layouts and values, tensors of its own but for those to `leave`."""
    known: dict[int, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in known:
                known[id(value)] = value if leave(value) else static_copy(value)
            return known[id(value)]
        if isinstance(value, tuple):
            return tuple(map(copied, value))
        if isinstance(value, list):
            return list(map(copied, value))
        if isinstance(value, dict):
            return {name: copied(part) for name, part in value.items()}
        return value

    return copied(batch)


def static_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor with its layout; a dimension of stride 0 (a batch that all models share) stays one."""
    if tensor.layout != torch.strided:
        return tensor.detach().clone()
    compact = _without_repeats(tensor)
    copy = torch.empty_strided(compact.shape, compact.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(compact).expand(tensor.shape)


def copy_over(own: torch.Tensor, new: torch.Tensor) -> None:
    """Write the values of `new` into `own`, a `static_copy` of one like it."""
    _without_repeats(own).copy_(_without_repeats(new), non_blocking=True)


@torch.no_grad()
def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0:
            tensor = tensor.narrow(dimension, 0, min(1, tensor.size(dimension)))
    return tensor.detach()
