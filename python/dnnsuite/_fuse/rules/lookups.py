# SPDX-License-Identifier: MIT
"""Places by whole numbers, `x[i]` and `x[i, j]`: those of each model, or one index for all where they share it, as
they do a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...nn.model_tensor import ModelTensor
from ...nn.sharing import is_shared

__all__ = ["index_of_all", "is_index", "places_in"]

_MASKS = (torch.bool, torch.uint8)


def is_index(value: Any) -> bool:
    """Return True for a tensor of whole numbers, which picks places; booleans pick another number in each model."""
    return isinstance(value, Tensor) and value.dtype not in _MASKS and not value.dtype.is_floating_point


def _of_all(index: ModelTensor) -> Tensor | None:
    """Return the index `[...]` that is that of all models; None if each has its own."""
    value = index.value
    return value[0] if value.size(0) == 1 or is_shared(value) else None


def places_in(x: Tensor, index: Any) -> tuple[Any, ...] | None:
    """Convert one model's `index` to that of `x` `[B, ...]`; None if it has no whole numbers, or not side by side.

    Numbers of each model's own must be first in the index: others move the result's dimensions.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    places = [n for n, item in enumerate(items) if isinstance(item, Tensor)]
    if not all(is_index(items[n]) for n in places) or any(isinstance(item, (int, list)) for item in items):
        return None
    if not places or places != list(range(places[0], places[-1] + 1)):
        return None
    shared = {n: index_of_all(items[n]) for n in places}
    if all(value is not None for value in shared.values()):
        return slice(None), *(shared.get(n, item) for n, item in enumerate(items))
    if places[0] > 0:
        return None
    rank = max(items[n].dim() for n in places)
    own = {n: _aligned(items[n].value, rank) if shared[n] is None else shared[n] for n in places}
    return _models(x, rank), *(own.get(n, item) for n, item in enumerate(items))


def _aligned(index: Tensor, rank: int) -> Tensor:
    """View `[B, ...]` with `rank` dimensions after the model's."""
    return index.reshape(index.size(0), *(1,) * (rank + 1 - index.dim()), *index.shape[1:])


def _models(x: Tensor, rank: int) -> Tensor:
    return torch.arange(x.size(0), device=x.device).view(-1, *(1,) * rank)


def index_of_all(index: Any) -> Tensor | None:
    """Return an index, `[...]`, that is the same in all models; None if each has its own."""
    return _of_all(index) if type(index) is ModelTensor else index
