# SPDX-License-Identifier: MIT
"""Tensors that code of all models has left in attributes, such as a cache of positions: each has all models' values.

Whatever takes some models of an array, or one, or adds some, takes theirs of these tensors too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..nn.model_tensor import ModelTensor

_DEEP = 3  # containers in containers that are looked into


def left_in(module: torch.nn.Module) -> Iterator[ModelTensor]:
    """Yield the tensors of all models in the attributes of a module, and in containers there."""
    for value in vars(module).values():
        yield from _found(value, _DEEP)


def _found(value: Any, depth: int) -> Iterator[ModelTensor]:
    if type(value) is ModelTensor:
        yield value
    elif depth and isinstance(value, (list, tuple, dict)):
        # Of a dictionary of the models' code its values, whatever that code does when it is asked for them.
        for part in dict.values(value) if isinstance(value, dict) else value:
            yield from _found(part, depth - 1)


def some_models(module: torch.nn.Module, start: int, length: int) -> dict[int, ModelTensor]:
    """Collect what is left in a module for models `start` to `start + length` alone, by identity."""
    return {id(left): ModelTensor(left.value.detach().narrow(0, start, length)) for left in left_in(module)}


def one_model(module: torch.nn.Module, index: int) -> dict[int, torch.Tensor]:
    """Collect what is left in a module for model `index`, as ordinary tensors, by identity."""
    return {id(left): left.value.detach()[index].clone() for left in left_in(module)}


def choose_models(module: torch.nn.Module, slots: Sequence[int | None]) -> None:
    """Let what is left in a module be that of the models in `slots`; a new one, None, is like the first."""
    rows = [0 if slot is None else slot for slot in slots]
    for left in left_in(module):
        left.become(left.value.detach()[torch.tensor(rows, device=left.device)])


def joined(parts: Sequence[Any]) -> Any:
    """Join what shards, in order, have left under one name; None if that is no tensor."""
    if all(type(part) is ModelTensor for part in parts):
        return ModelTensor(torch.cat([part.value.detach() for part in parts]))
    if type(parts[0]) is torch.Tensor and type(parts[-1]) is torch.Tensor:
        return parts[0].detach()
    return None
