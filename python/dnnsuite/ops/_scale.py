# SPDX-License-Identifier: MIT
"""Products of a tensor with factors that its rows or columns share, whose gradients are one pass."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from .device import on_cpu
from .library import differentiable, eager, fakes_like, library, tracing
from .memory_order import memory_order, way_back

LONG_ROW = 128
"""Numbers of a row from which a factor of it pays: the sum of each row is a chain of its own."""

_scaled = library.scaled.default
_backward = library.scaled_backward.default


fakes_like("x", "scaled")
fakes_like(("x", "factors"), "scaled_backward")


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.rest = inputs[2:]


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return *_backward(grad, *ctx.saved_tensors, *ctx.rest), None


def _of_groups(x: Tensor, factors: Tensor, by_rows: bool) -> Tensor:
    """Compose the operator of torch's product."""
    return x * factors.unsqueeze(2 if by_rows else 1)


differentiable(_scaled, _setup, _gradient, _of_groups)


def _forward(x: Tensor, factors: Tensor, order: list[int], sizes: tuple[int, int, int], by_rows: bool) -> Tensor:
    laid_out = x.permute(order)
    groups = factors.permute(order).reshape(sizes[0], sizes[1 if by_rows else 2])
    return _scaled(laid_out.view(sizes), groups, by_rows).view(laid_out.shape).permute(way_back(order))


def _gradient_of_products(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, factors = ctx.saved_tensors
    order, sizes, by_rows = ctx.rest
    laid_out, own = x.permute(order), factors.permute(order)
    groups = own.reshape(sizes[0], sizes[1 if by_rows else 2])
    dx, sums = _backward(grad.permute(order).reshape(sizes), laid_out.view(sizes), groups, by_rows)
    back = way_back(order)
    return dx.view(laid_out.shape).permute(back), sums.view(own.shape).permute(back), None, None, None


def _composition(x: Tensor, factors: Tensor, *_: Any) -> Tensor:
    return x * factors


_eager = eager(_forward, _setup, _gradient_of_products, _composition)


def _groups(x: Tensor, factors: Tensor, order: list[int]) -> tuple[tuple[int, int, int], bool] | None:
    """Return the sizes of groups, rows and columns in memory, and True if it is the rows that have factors; None if it
    is neither of both."""
    shared: list[bool] = []  # for each run of dimensions: the numbers along it share a factor
    sizes: list[int] = []
    for dim in order:
        size = x.size(dim)
        if size == 1 and dim != 0:
            continue
        alike = dim != 0 and factors.size(dim) == 1
        if dim == 0 or shared[-1] != alike:
            shared.append(alike)
            sizes.append(size)
        else:
            sizes[-1] *= size
    if shared == [False, True, False]:
        return (sizes[0], sizes[1], sizes[2]), False
    if shared == [False, True] and sizes[1] >= LONG_ROW:
        return (x.size(0), sizes[0] // x.size(0), sizes[1]), True
    return None


def scaled(x: Tensor, factors: Tensor) -> Tensor | None:
    """Compute x * factors on a CPU, for x [B, *] and factors [B, *] whose size is 1 in some dimensions.

    Returns None if x has gaps in memory, or if the factors do not lie along rows or columns of x.
    """
    if x.dim() != factors.dim() or x.dtype != factors.dtype or x.dtype not in (torch.float32, torch.float64):
        return None
    known = on_cpu(x) and on_cpu(factors) and factors.size(0) == x.size(0) and x.numel() > 0
    if not known or any(n not in (1, m) for n, m in zip(factors.shape, x.shape, strict=True)):
        return None
    order = memory_order(x)
    if not x.permute(order).is_contiguous():
        return None
    found = _groups(x, factors, order)
    if found is None or prod(found[0]) == factors.numel():
        return None
    y: Tensor = (_forward if tracing() else _eager)(x, factors, order, *found)
    return y
