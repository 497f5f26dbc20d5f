# SPDX-License-Identifier: MIT
"""Linear layers of B models, composed of torch's matrix products: which ones, `benchmarks/ops/bench_linear.py` says.

Small products of several models go into one batched product (1.5 times as fast as a loop at 32 x 128 x 128, B = 8).
Large ones on a CPU go one by one into their places of the result: the batched product of MKL is 1.2 times slower at
160 x 128 x 8192, and a model alone then gets the same bits as among others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._library import tracing

__all__ = ["linear"]

LARGE = 2**24
"""Multiplications of one model from which a product of its own is worth the call."""


class _OneByOne(torch.autograd.Function):
    """x [B, R, I], weight [B, O, I], bias [B, O] or None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        y = x.new_empty(*x.shape[:2], weight.shape[1])
        for model in range(len(x)):
            if bias is None:
                torch.mm(x[model], weight[model].t(), out=y[model])
            else:
                torch.addmm(bias[model], x[model], weight[model].t(), out=y[model])
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        dx = torch.empty_like(x) if needs_x else None
        dweight = torch.empty_like(weight) if needs_weight else None
        for model, g in enumerate(grad):
            if dx is not None:
                torch.mm(g, weight[model], out=dx[model])
            if dweight is not None:
                torch.mm(g.t(), x[model], out=dweight[model])
        return dx, dweight, grad.sum(1) if needs_bias and ctx.has_bias else None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weightᵀ + bias of each model: x [B, ..., I], weight [B, O, I], bias [B, O] to [B, ..., O]."""
    models, outputs, inputs = weight.shape
    if x.dim() < 2 or x.shape[0] != models or x.shape[-1] != inputs:
        raise InvalidArgument(
            f"linear: x must be [B, ..., I] with B = {models} and I = {inputs} as in weight "
            f"{list(weight.shape)}, not {list(x.shape)}"
        )
    if bias is not None and bias.shape != (models, outputs):
        raise InvalidArgument(f"linear: bias must be {[models, outputs]}, not {list(bias.shape)}")
    shape = (*x.shape[:-1], outputs)
    if models == 1:
        row_bias = None if bias is None else bias.reshape(outputs)
        y = torch.nn.functional.linear(x.reshape(-1, inputs), weight.reshape(outputs, inputs), row_bias)
        return y.view(shape)
    rows = x.shape[1:-1].numel()
    x = x.reshape(models, rows, inputs)
    if rows * inputs * outputs >= LARGE and _plain(x, weight):
        y = _OneByOne.apply(x, weight, bias)
    elif bias is None:
        y = torch.bmm(x, weight.transpose(1, 2))
    else:
        y = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
    return y.view(shape)


def _plain(x: Tensor, weight: Tensor) -> bool:
    """Whether products may be written into place: on a CPU, of one dtype, with no one rewriting the calls."""
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype
        and not tracing()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
    )
