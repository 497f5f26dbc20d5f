# SPDX-License-Identifier: MIT
"""Structure of batches, and copies of them for steps that run after their caller has gone on."""

from __future__ import annotations

import copy
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import torch

from .._fuse import is_record, names_of_record

Build = Callable[[Sequence[Any]], Any]


def opened(value: Any) -> tuple[Sequence[Any], Sequence[Any], Build] | None:
    """Take a tuple, named tuple, mapping, dataclass or namespace apart; None for anything else.

    Returns the names of its parts, the parts, and a function that builds such a value from other parts.
    """
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return names or (), value, type(value) if names is None else type(value)._make  # type: ignore[attr-defined]
    if isinstance(value, MutableMapping):
        keys = tuple(value)

        def fill(parts: Sequence[Any]) -> Any:
            other = copy.copy(value)
            for key, part in zip(keys, parts, strict=True):
                other[key] = part
            return other

        return keys, [value[key] for key in keys], fill
    if is_record(value):
        fields = names_of_record(value)

        def assign(parts: Sequence[Any]) -> Any:
            other = copy.copy(value)
            for name, part in zip(fields, parts, strict=True):
                object.__setattr__(other, name, part)  # also where it is frozen
            return other

        return fields, [getattr(value, name) for name in fields], assign
    return None


def with_parts(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply `function` to the parts of `value` and put the results together again; values without parts stay as they
    are."""
    found = opened(value)
    return value if found is None else found[2]([function(part) for part in found[1]])


def own_copy(batch: Any, leave: Callable[[torch.Tensor], bool] = lambda tensor: False) -> Any:
    """Copy a batch: same structure, layouts and values, tensors of its own but for those to `leave`."""
    known: dict[int, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in known:
                known[id(value)] = value if leave(value) else static_copy(value)
            return known[id(value)]
        if isinstance(value, list):
            return list(map(copied, value))
        return with_parts(value, copied)

    return copied(batch)


def static_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor with its layout; a dimension of stride 0 (a batch that all models share) stays one."""
    if tensor.layout != torch.strided:
        return tensor.detach().clone()
    once = compact(tensor)
    copy = torch.empty_strided(once.shape, once.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(once).expand(tensor.shape)


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """View a tensor without autograd, and with one place only along dimensions that repeat it (of stride 0)."""
    tensor = tensor.detach()
    if tensor.layout == torch.strided and 0 in tensor.stride():
        for dimension, stride in enumerate(tensor.stride()):
            if stride == 0:
                tensor = tensor.narrow(dimension, 0, min(1, tensor.size(dimension)))
    return tensor
