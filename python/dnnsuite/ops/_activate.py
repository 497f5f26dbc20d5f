# SPDX-License-Identifier: MIT
"""Activations that torch computes slowly on a CPU: tanh takes ten times as long there as a sigmoid."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .device import on_cpu
from .library import applied, below_autograd, differentiable, fakes_like, library, tracing, transforming
from .memory_order import memory_order, way_back

FEWEST_NUMBERS = {"tanh": 2048, "mish": 2048, "gelu_tanh": 4096, "softplus": 8192, "elu": 8192}
"""By curve: numbers of a model below which torch's call costs less."""

_activate = library.activate.default
_backward = library.activate_backward.default


fakes_like("x", "activate", "activate_backward")


def _composition(x: Tensor, curve: str, first: float, second: float) -> Tensor:
    if curve == "softplus":
        return F.softplus(x, first, second)
    if curve == "elu":
        return F.elu(x, first) * second
    if curve == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    return F.mish(x) if curve == "mish" else torch.tanh(x)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, *ctx.rest = inputs
    ctx.save_for_backward(x)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _backward(grad, *ctx.saved_tensors, *ctx.rest), None, None, None


_eager = differentiable(_activate, _setup, _gradient, _composition)


class _Tanh(torch.autograd.Function):
    """Hyperbolic tangent, whose gradient is torch's, of the result: it may be differentiated any number of times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with below_autograd():
            y: Tensor = _activate(x, "tanh", 0.0, 0.0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        gradient: Tensor = torch.ops.aten.tanh_backward(grad, y)
        return gradient


_tanh = applied(_Tanh)


def activate(x: Tensor, curve: str, first: float = 0.0, second: float = 0.0) -> Tensor | None:
    """Compute an activation of x [B, ...], float32 on a CPU; None for what torch's own function serves.

    Args:
        curve: 'tanh', 'gelu_tanh', 'mish', 'softplus' with beta `first` and threshold `second`, or 'elu' with the
            factor `first` below 0 and the scale `second`.
    """
    if x.dtype != torch.float32 or not on_cpu(x) or x.numel() < FEWEST_NUMBERS[curve] * len(x):
        return None
    if tracing() or transforming() or torch.is_autocast_enabled("cpu"):
        return None
    if x.is_contiguous():
        return _called(x, curve, first, second)
    order = memory_order(x)
    laid_out = x.permute(order)
    return _called(laid_out, curve, first, second).permute(way_back(order)) if laid_out.is_contiguous() else None


def _called(x: Tensor, curve: str, first: float, second: float) -> Tensor:
    y: Tensor
    if curve == "tanh" and torch.is_grad_enabled():
        y = _tanh(x)
    else:
        y = _eager(x, curve, first, second)
    return y
