# SPDX-License-Identifier: MIT
"""Batches for an array."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import InvalidArgument


def stack(batch: torch.Tensor | Sequence[torch.Tensor], B: int | None = None) -> torch.Tensor:
    """Make a batch `[B, ...]` for an array.

    Args:
        batch: one tensor that all models share, which is not copied (stride 0 in dimension 0), or a sequence of B
            tensors of one shape.
        B: number of models; needed for one shared tensor.

    Raises:
        InvalidArgument: B is missing or is not the number of tensors, or the tensors have different shapes.

    >>> import torch, dnnsuite
    >>> x = dnnsuite.stack(torch.ones(5, 8), B=3)
    >>> x.shape, x.stride()
    (torch.Size([3, 5, 8]), (0, 8, 1))
    """
    if isinstance(batch, torch.Tensor):
        if B is None or B < 1:
            raise InvalidArgument(f"stack of one shared tensor needs the number of models, B; got {B!r}")
        return batch.unsqueeze(0).expand(B, *batch.shape)
    tensors = list(batch)
    if not tensors or (B is not None and len(tensors) != B):
        raise InvalidArgument(
            f"stack got {len(tensors)} tensors for {B if B is not None else 'one or more'} models"
        )
    for index, tensor in enumerate(tensors):
        if tensor.shape != tensors[0].shape:
            raise InvalidArgument(
                f"tensors 0 and {index} differ: {list(tensors[0].shape)} and {list(tensor.shape)}"
            )
    return torch.stack(tensors)


def unstack(batch: torch.Tensor) -> list[torch.Tensor]:
    """List the B views of a batch `[B, ...]`, one per model.

    >>> import torch, dnnsuite
    >>> [part.tolist() for part in dnnsuite.unstack(torch.tensor([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    return list(batch.unbind(0))
