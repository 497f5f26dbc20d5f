# SPDX-License-Identifier: MIT
"""Order of a tensor's dimensions in memory, and functions of torch that are slow in some orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

Result = TypeVar("Result", Tensor, tuple[Tensor, ...])


def memory_order(x: Tensor) -> list[int]:
    """List the dimensions of `x` `[B, ...]` as they lie in memory, outermost first; the model stays in front."""
    strides = x.stride()
    return [0, *sorted(range(1, x.dim()), key=lambda d: -strides[d])]


def way_back(order: Sequence[int]) -> list[int]:
    """List the dimensions that undo `permute(order)`."""
    return sorted(range(len(order)), key=order.__getitem__)


def packed(x: Tensor) -> tuple[Tensor, list[int]] | None:
    """View `x` with its dimensions as they lie in memory, contiguous, and list them; None if x has gaps in memory."""
    order = memory_order(x)
    view = x.permute(order)
    return (view, order) if view.is_contiguous() else None


def by_memory_order(function: Callable[[list[Tensor], int], Result], tensors: Sequence[Tensor], dim: int) -> Result:
    """Call `function(tensors, dim)` on tensors `[B, ...]` whose dimensions stand as those of the largest lie in memory,
    and turn the results back.

    torch knows the channels last of `[N, C, H, W]` only: of more dimensions `cat`, and the gradient of `split`, would
    copy what is read run by run number by number.
    """
    largest = max(tensors, key=Tensor.numel)
    if largest.is_contiguous():
        return function(list(tensors), dim)
    order = memory_order(largest)
    alike = all(t.dim() == largest.dim() for t in tensors)
    if order == sorted(order) or not alike or 0 in largest.stride():
        return function(list(tensors), dim)
    found = function([t.permute(order) for t in tensors], order.index(dim))
    back = way_back(order)
    if isinstance(found, Tensor):
        return found.permute(back)
    return tuple(part.permute(back) for part in found)


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
