# SPDX-License-Identifier: MIT
"""Order of a tensor's dimensions in memory, and functions of torch that are slow in some orders."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["concatenated", "in_one_piece", "memory_order"]


def memory_order(x: Tensor) -> list[int]:
    """List the dimensions of `x` `[B, ...]` as they lie in memory, outermost first; the model stays in front."""
    strides = x.stride()
    return [0, *sorted(range(1, x.dim()), key=lambda d: -strides[d])]


def concatenated(tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate tensors `[B, ...]` along `dim`, in the memory order of the largest.

    torch knows channels last of four dimensions only. In five it makes the result contiguous, number by number: ten
    times slower.
    """
    largest = max(tensors, key=Tensor.numel)
    if largest.is_contiguous() or any(x.dim() != largest.dim() for x in tensors):
        return torch.cat(list(tensors), dim)
    order = memory_order(largest)
    place = order.index(dim % largest.dim())
    back = sorted(range(len(order)), key=order.__getitem__)
    return torch.cat([x.permute(order) for x in tensors], place).permute(back)


def in_one_piece(x: Tensor) -> Tensor:
    """Return `x` if its numbers lie side by side in some order of dimensions, else a copy that has them so; what is
    expanded stays so.

    torch's exponentials of a slice take 2 to 20 times as long: it computes runs of less than 32 numbers one by one.
    """
    if x.is_contiguous():
        return x
    step = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if stride == 0:
            return x
        if size != 1 and stride != step:
            return x.clone()
        step *= size
    return x
