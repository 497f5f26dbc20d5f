# SPDX-License-Identifier: MIT
"""Maximum over a dimension, and its index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .library import cuda_kernels, differentiable, fake, library, tracing
from .memory_order import memory_order

_forward = library.max_over.default


def places_of(x: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Make tensors for maxima of this shape and for their places."""
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


fake("max_over", lambda x, dim: places_of(x, [1 if d == dim else size for d, size in enumerate(x.shape)]))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.dim = inputs
    ctx.shape = x.shape
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _grad(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return None, None
    (indices,) = ctx.saved_tensors
    return grad.new_zeros(ctx.shape).scatter_(ctx.dim, indices, grad), None


def _composition(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    values, indices = torch.max(x, dim, keepdim=True)
    return values, indices


_eager = differentiable(_forward, _setup, _grad, _composition)


def max_over(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Compute the maximum of x [B, ...] over dimension `dim` (1 or more, kept with size 1), and its index.

    As in torch.max the index is that of the first of equal elements, and NaN counts as the largest. x may have any
    memory format.
    """
    if x.numel() == 0 or (x.is_cuda and not cuda_kernels):
        return _composition(x, dim)
    call = _forward if tracing() else _eager
    if x.is_contiguous():
        values, indices = call(x, dim)
        return values, indices
    order = memory_order(x)
    back = [order.index(d) for d in range(x.dim())]
    values, indices = call(x.permute(order), order.index(dim))
    return values.permute(back), indices.permute(back)
