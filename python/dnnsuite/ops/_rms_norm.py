# SPDX-License-Identifier: MIT
"""RMS norm with each model's own weight."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ._pointwise import rows_of
from .device import on_gpu
from .library import cuda_kernels, differentiable, fake, fakes_like, library, tracing

_forward = library.rms_norm.default
_backward = library.rms_norm_backward.default
_backward_weight = library.rms_norm_backward_weight.default


fakes_like("x", "rms_norm")
fake("rms_norm_backward", lambda x, weight: (x.new_empty(x.shape), x.new_empty(0 if weight is None else weight.shape)))
fake("rms_norm_backward_weight", lambda x: x.new_empty(x.shape[0], x.shape[-1]))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    if not ctx.needs_input_grad[0] and not on_gpu(x):
        return None, _backward_weight(grad, x, ctx.eps), None
    dx, dweight = _backward(grad, x, weight, ctx.eps)
    return dx, None if weight is None else dweight, None


def _composition(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    y = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    return y if weight is None else y * rows_of(weight, x)


_eager = differentiable(_forward, _setup, _grad, _composition)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Compute x / sqrt(mean(x²) + eps) * weight over the last dimension of x [B, ..., D]; the weight is [B, D]."""
    if x.is_cuda and not cuda_kernels:
        return _composition(x, weight, eps)
    result: Tensor = (_forward if tracing() else _eager)(x, weight, eps)
    return result
