# SPDX-License-Identifier: MIT
"""Gated linear units: one half of a dimension times the sigmoid of the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .library import differentiable, fake, fakes_like, library, tracing
from .memory_order import memory_order, way_back

_glu = library.glu.default
_backward = library.glu_backward.default


fake("glu", lambda x, dim: x.new_empty([size // 2 if d == dim else size for d, size in enumerate(x.shape)]))
fakes_like("x", "glu_backward")


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.rest = inputs[1:]


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _backward(grad, *ctx.saved_tensors, *ctx.rest), None


_eager = differentiable(_glu, _setup, _gradient, torch.nn.functional.glu)


def glu(x: Tensor, dim: int) -> Tensor | None:
    """Compute a * sigmoid(b), where a and b are the halves of x [B, *] along `dim`, on a CPU.

    The result has the memory format of x. Returns None if x has gaps in memory, or in any other case that torch's
    operator should handle.
    """
    dim %= x.dim()
    if x.dtype not in (torch.float32, torch.float64) or dim == 0 or x.size(dim) % 2:
        return None
    call = _glu if tracing() else _eager
    if x.is_contiguous():
        y: Tensor = call(x, dim)
        return y
    order = memory_order(x)
    laid_out = x.permute(order)
    if not laid_out.is_contiguous():
        return None
    y = call(laid_out, order.index(dim))
    return y.permute(way_back(order))
