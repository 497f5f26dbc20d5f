# SPDX-License-Identifier: MIT
"""Functions of one model's tensors applied to an array's `[B, ...]`, and conversion of dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..errors import InvalidArgument


def each_model(
    function: Callable[..., torch.Tensor], first: torch.Tensor, *others: torch.Tensor | None
) -> torch.Tensor:
    """Call `function` on each model's part of the tensors and stack the results; bits are those of one model alone."""
    tensors = (first, *others)
    if len(first) == 0:  # the shape is what one model would give
        zeros = (None if t is None else t.new_zeros(t.shape[1:]) for t in tensors)
        return function(*zeros).unsqueeze(0)[:0]
    if len(first) == 1:
        return function(*(None if t is None else t.squeeze(0) for t in tensors)).unsqueeze(0)
    # unbind and not an index: its gradient is one stack, and not B tensors of the array's size.
    parts = [[None] * len(first) if t is None else t.unbind(0) for t in tensors]
    return stack_models([function(*own) for own in zip(*parts, strict=True)])


def stack_models(results: Sequence[torch.Tensor]) -> torch.Tensor:
    """Stack the models' results to `[B, ...]`, channels last in memory if theirs are."""
    first = results[0]
    if first.dim() < 3 or first.is_contiguous() or not first.movedim(1, -1).is_contiguous():
        return torch.stack(list(results))
    return torch.stack([result.movedim(1, -1) for result in results]).movedim(-1, 2)


def shifted(dim: int, x: torch.Tensor, name: str) -> int:
    """Convert a dimension of one model's tensor to that of the array's x, `[B, ...]`."""
    rank = x.dim() - 1
    if rank < 1 or not -rank <= dim < rank:
        raise InvalidArgument(
            f"{name}: dim={dim} is not a dimension of a model's tensor {list(x.shape[1:])}, part of {list(x.shape)} "
            "whose dimension 0 is the model"
        )
    return dim + 1 if dim >= 0 else dim
