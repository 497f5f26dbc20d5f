# SPDX-License-Identifier: MIT
"""Layer norm with each model's own weight and bias, alone and after residual + dropout(x + bias)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._pointwise import add_composition, rows_of
from .device import on_gpu
from .library import differentiable, fake, fakes_like, library, tracing

_norm = library.layer_norm.default
_norm_backward = library.layer_norm_backward.default
_norm_backward_parameters = library.layer_norm_backward_parameters.default
_join = library.bias_dropout_add_layer_norm.default
_join_backward = library.bias_dropout_add_layer_norm_backward.default


fakes_like("x", "layer_norm", "bias_dropout_add_layer_norm")


def _new_parameters(x: Tensor, count: int) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape[0], x.shape[-1]) for _ in range(count))


fake("layer_norm_backward", lambda x: (x.new_empty(x.shape), *_new_parameters(x, 2)))
fake("layer_norm_backward_parameters", lambda x: _new_parameters(x, 2))
fake(
    "bias_dropout_add_layer_norm_backward",
    lambda x: (x.new_empty(x.shape), x.new_empty(x.shape), *_new_parameters(x, 3)),
)


def _norm_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, eps = inputs
    ctx.eps, ctx.has_bias = eps, bias is not None
    ctx.save_for_backward(x, weight)


def _norm_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    dx = None
    if ctx.needs_input_grad[0] or on_gpu(x):
        dx, dweight, dbias = _norm_backward(grad, x, weight, ctx.eps)
    else:
        dweight, dbias = _norm_backward_parameters(grad, x, ctx.eps)
    return dx, None if weight is None else dweight, dbias if ctx.has_bias else None, None


def _join_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, bias, residual, p, rng, weight, norm_bias, eps = inputs
    ctx.eps, ctx.has_norm_bias = eps, norm_bias is not None
    ctx.save_for_backward(x, bias, residual, p, rng, weight)


def _join_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, bias, residual, p, rng, weight = ctx.saved_tensors
    dx, dresidual, dbias, dweight, dnorm_bias = _join_backward(grad, x, bias, residual, p, rng, weight, ctx.eps)
    return (
        dx,
        None if bias is None else dbias,
        dresidual,
        None,
        None,
        None if weight is None else dweight,
        dnorm_bias if ctx.has_norm_bias else None,
        None,
    )


def _norm_composition(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    y = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps)
    y = y if weight is None else y * rows_of(weight, x)
    return y if bias is None else y + rows_of(bias, x)


def _join_composition(
    x: Tensor,
    bias: Tensor | None,
    residual: Tensor,
    p: Tensor | None,
    rng: Tensor | None,
    weight: Tensor | None,
    norm_bias: Tensor | None,
    eps: float,
) -> Tensor:
    return _norm_composition(add_composition(x, bias, residual, p, rng), weight, norm_bias, eps)


LONGEST_DROPPED = 2**18
"""Up to this length a GPU's kernel has room for the bits of a row's dropout."""

_norm_eager = differentiable(_norm, _norm_setup, _norm_grad, _norm_composition)
_join_eager = differentiable(_join, _join_setup, _join_grad, _join_composition)


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Normalise the last dimension of x [B, ..., D], with weight and bias [B, D] of each model.

    The backward pass computes the statistics again, which is cheaper than saving them because the row is in the cache.
    """
    result: Tensor = (_norm if tracing() else _norm_eager)(x, weight, bias, eps)
    return result


def bias_dropout_add_layer_norm(
    x: Tensor,
    bias: Tensor | None,
    residual: Tensor,
    p: Tensor | None = None,
    rng: Tensor | None = None,
    weight: Tensor | None = None,
    norm_bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Compute layer_norm(residual + dropout(x + bias)), the end of a post-norm block, in one pass in each direction.

    x and residual are [B, ..., D]; bias, weight and norm_bias are [B, D]; p [B] and rng [B, 2] are as in `dropout`.
    """
    call = _join if tracing() else _join_eager
    if p is not None and on_gpu(x) and x.shape[-1] > LONGEST_DROPPED:
        call = _join_composition
    result: Tensor = call(x, bias, residual, p, rng, weight, norm_bias, eps)
    return result
