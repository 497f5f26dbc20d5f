# SPDX-License-Identifier: MIT
"""Layer, RMS and group norm with each model's own weight and bias."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ._batch_norm import laid_out
from ._pointwise import add_composition, rows_of
from .device import on_gpu
from .library import cuda_kernels, differentiable, fake, fakes_like, library, tracing, transforming

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


_rms_norm_forward = library.rms_norm.default
_rms_norm_backward = library.rms_norm_backward.default
_backward_weight = library.rms_norm_backward_weight.default


fakes_like("x", "rms_norm")
fake("rms_norm_backward", lambda x, weight: (x.new_empty(x.shape), x.new_empty(0 if weight is None else weight.shape)))
fake("rms_norm_backward_weight", lambda x: x.new_empty(x.shape[0], x.shape[-1]))


def _rms_norm_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _rms_norm_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    if not ctx.needs_input_grad[0] and not on_gpu(x):
        return None, _backward_weight(grad, x, ctx.eps), None
    dx, dweight = _rms_norm_backward(grad, x, weight, ctx.eps)
    return dx, None if weight is None else dweight, None


def _rms_norm_composition(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    y = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    return y if weight is None else y * rows_of(weight, x)


_rms_norm_eager = differentiable(_rms_norm_forward, _rms_norm_setup, _rms_norm_grad, _rms_norm_composition)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Compute x / sqrt(mean(x²) + eps) * weight over the last dimension of x [B, ..., D]; the weight is [B, D]."""
    if x.is_cuda and not cuda_kernels:
        return _rms_norm_composition(x, weight, eps)
    result: Tensor = (_rms_norm_forward if tracing() else _rms_norm_eager)(x, weight, eps)
    return result


_group_norm_forward = library.group_norm.default
_group_norm_backward = library.group_norm_backward.default

SMALLEST = 16
"""Least elements of a channel for which there is a kernel, if they are contiguous."""


def _result(x: Tensor) -> Tensor:
    """Make the tensor for the result; on a CPU it has the memory order of x."""
    return x.new_empty(x.shape) if x.is_cuda else laid_out(x)


fake("group_norm", _result)
fake("group_norm_backward", lambda x: (_result(x), *(x.new_empty(x.shape[0], x.shape[2]) for _ in range(2))))


def _group_norm_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.num_groups, weight, bias, ctx.eps = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, weight)


def _group_norm_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    dx, dweight, dbias = _group_norm_backward(grad, x, ctx.num_groups, weight, ctx.eps)
    return dx, None, None if weight is None else dweight, dbias if ctx.has_bias else None, None


def _group_norm_composition(
    x: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    groups = x.reshape(*x.shape[:2], num_groups, x.shape[2] // num_groups * math.prod(x.shape[3:]))
    variance, mean = torch.var_mean(groups, -1, correction=0, keepdim=True)
    y = ((groups - mean) * (variance + eps).rsqrt()).view(x.shape)
    shape = (len(x), 1, -1, *[1] * (x.dim() - 3))
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


_group_norm_eager = differentiable(_group_norm_forward, _group_norm_setup, _group_norm_grad, _group_norm_composition)


def has_group_norm(x: Tensor) -> bool:
    """Return True if `group_norm` of x [B, N, C, *] has its own kernel, instead of using torch's model by model."""
    inner = math.prod(x.shape[3:])
    if x.is_cuda:
        return cuda_kernels and (inner >= SMALLEST or len(x) == 0)
    return inner >= SMALLEST or inner == 1 or len(x) == 0 or _channels_last(x)


def _channels_last(x: Tensor) -> bool:
    """Return True if each model's [N, C, *] lies with the channels last, and not contiguous as well."""
    own = x.select(0, 0)
    return not own.is_contiguous() and own.movedim(1, -1).is_contiguous()


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Compute group norm of x [B, N, C, *], with weight and bias [B, C].

    On a CPU the result has the memory format of x. Channels of fewer than 16 elements are computed by torch, model by
    model, unless they are last in memory on a CPU.
    """
    if transforming():
        return _group_norm_composition(x, num_groups, weight, bias, eps)
    if has_group_norm(x):
        result: Tensor = (_group_norm_forward if tracing() else _group_norm_eager)(x, num_groups, weight, bias, eps)
        return result
    if not x.requires_grad:  # torch's gradient of the weights alone crashes on channels that lie last
        x = x.flatten().view(x.shape)
    each = [
        torch.nn.functional.group_norm(
            x[i], num_groups, None if weight is None else weight[i], None if bias is None else bias[i], eps
        )
        for i in range(len(x))
    ]
    return torch.stack(each)
