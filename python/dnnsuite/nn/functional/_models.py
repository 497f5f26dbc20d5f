# SPDX-License-Identifier: MIT
"""How a function of one model's tensors becomes one of an array's."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...errors import InvalidArgument


def each_model(
    function: Callable[..., torch.Tensor], first: torch.Tensor, *others: torch.Tensor | None
) -> torch.Tensor:
    """`function` of model i's part of every tensor, stacked: each model has the bits that it has alone."""
    results = [
        function(first[i], *(None if other is None else other[i] for other in others))
        for i in range(len(first))
    ]
    if len(results) == 1:
        return results[0].unsqueeze(0)
    return torch.stack(results) if results else torch.empty_like(first)


def shifted(dim: int, x: torch.Tensor, name: str) -> int:
    """A dimension of one model's tensor as a dimension of the array's, x `[B, ...]`."""
    rank = x.dim() - 1
    if rank < 1 or not -rank <= dim < rank:
        raise InvalidArgument(
            f"{name}: dim={dim} is no dimension of a model's tensor {list(x.shape[1:])}, part of {list(x.shape)} "
            "whose dimension 0 is the model"
        )
    return dim + 1 if dim >= 0 else dim
