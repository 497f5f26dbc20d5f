# SPDX-License-Identifier: MIT
"""Maximum over points of a batch norm and its activation, without computing them for all points.

A norm keeps the order of a channel's numbers, or reverses it if the weight is negative, and a ReLU keeps it: the
maximum is the result of the largest, or smallest, input. The gradient needs one point per channel and two sums.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._batch_norm import NORM_ACTIVATIONS, batch_norm_act, batch_norm_composition, new_statistics
from ._pool import places_of
from .library import applied, cuda_kernels, fake, gradients_through, library, remember, tracing, transforming

MAX_ACTIVATIONS = frozenset({"none", "relu", "relu6", "leaky_relu"})
"""Activations that preserve the order of numbers."""

_KERNEL_DTYPES = (torch.float32, torch.float64)
"""Dtypes on CUDA: in 16 bits the mean would be rounded before its subtraction from the maximum."""

_statistics = library.batch_norm_statistics.default
_signed_max_over = library.signed_max_over.default


fake("batch_norm_statistics", new_statistics)
fake("signed_max_over", lambda x: places_of(x, (x.shape[0], x.shape[1], 1, x.shape[3])))


def _slope(activation: str, z: Tensor, slope: float) -> Tensor:
    """Return the activation's derivative."""
    if activation == "relu":
        return (z > 0).to(z.dtype)
    if activation == "relu6":
        return ((z > 0) & (z < 6)).to(z.dtype)
    return torch.where(z > 0, 1.0, slope).to(z.dtype)


def _composition(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any, norm: Any = batch_norm_composition
) -> tuple[Tensor, Tensor, Tensor]:
    y, statistics = norm(x, weight, bias, None, *rest)
    values, indices = torch.max(y, -1, keepdim=True)
    return values, indices, statistics


class _BatchNormMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, bias, given, variance, eps, ctx.activation, ctx.slope = args
        rows = x.movedim(2, -1)
        if given is None:
            statistics = _statistics(x, eps)
        else:
            statistics = torch.stack([given, (variance + eps).rsqrt(), variance])
        mean, inverse = statistics[0].to(x.dtype).unsqueeze(1), statistics[1].to(x.dtype).unsqueeze(1)
        if weight is None:
            sign = x.new_ones(x.shape[0], x.shape[2])
        else:
            sign = torch.where(weight < 0, -1.0, 1.0).to(x.dtype)
        best, indices = _signed_max_over(rows, sign)
        normal = (best.squeeze(2) * sign.unsqueeze(1) - mean) * inverse
        z = normal if weight is None else normal * weight.unsqueeze(1)
        z = z if bias is None else z + bias.unsqueeze(1)
        ctx.training = given is None
        ctx.save_for_backward(x, weight, normal, z, indices, statistics)
        remember(ctx, args)
        ctx.mark_non_differentiable(indices, statistics)
        ctx.set_materialize_grads(False)
        value = NORM_ACTIVATIONS[ctx.activation](z, ctx.slope)
        return value.unsqueeze(-1), indices.movedim(-1, 2), statistics

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
        if grad is None:
            return (None,) * 8
        if torch.is_grad_enabled():
            return gradients_through(_composition, ctx, (grad, None, None))
        x, weight, normal, z, indices, statistics = ctx.saved_tensors[:6]
        dz = grad.squeeze(-1)
        dz = dz if ctx.activation == "none" else dz * _slope(ctx.activation, z, ctx.slope)
        dbias, dweight = dz.sum(1), (dz * normal).sum(1)
        mean, inverse = statistics[0].to(x.dtype), statistics[1].to(x.dtype)
        scale = inverse if weight is None else inverse * weight
        dx = None
        if ctx.needs_input_grad[0]:
            rows = x.movedim(2, -1)
            if ctx.training:
                share = scale / (rows.shape[1] * rows.shape[2])
                times = -share * inverse * dweight
                plus = -share * dbias - times * mean
                dx = torch.addcmul(plus[:, None, None], rows, times[:, None, None])
            else:
                dx = torch.zeros_like(rows)
            dx.scatter_add_(2, indices, (dz * scale.unsqueeze(1)).unsqueeze(2))
            dx = dx.movedim(-1, 2)
        needs_weight, needs_bias = ctx.needs_input_grad[1:3]
        return dx, dweight if needs_weight else None, dbias if needs_bias else None, *(None,) * 5


_largest = applied(_BatchNormMax)


def batch_norm_max(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    mean: Tensor | None = None,
    variance: Tensor | None = None,
    eps: float = 1e-5,
    activation: str = "none",
    slope: float = 0.01,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the maximum of activation(batch_norm(x)) over L, for x [B, N, C, L].

    The arguments are those of `batch_norm_act`; `activation` is one of `MAX_ACTIVATIONS` (with `slope` >= 0). x should
    have its channels last in memory, otherwise it is copied.

    Returns:
        Values [B, N, C, 1], their indices [B, N, C, 1], and the statistics [3, B, C] of `batch_norm_act`. If
        normalisation rounds several points to the same number, the index is that of the point that was largest before.
    """
    arguments = (x, weight, bias, mean, variance, eps, activation, slope)
    has_kernels = x.device.type == "cpu" or (cuda_kernels and x.is_cuda and x.dtype in _KERNEL_DTYPES)
    if not has_kernels or x.numel() == 0 or tracing() or transforming():
        return _composition(*arguments, norm=batch_norm_act)
    return _largest(*arguments)
