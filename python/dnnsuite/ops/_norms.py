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
from .library import cuda_kernels, differentiable, fake, fakes_like, library, saves, transforming

fakes_like("x", "layer_norm", "bias_dropout_add_layer_norm", "rms_norm")


def _new_parameters(x: Tensor, count: int) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape[0], x.shape[-1]) for _ in range(count))


fake("layer_norm_backward", lambda x: (x.new_empty(x.shape), *_new_parameters(x, 2)))
fake("layer_norm_backward_parameters", lambda x: _new_parameters(x, 2))
fake(
    "bias_dropout_add_layer_norm_backward",
    lambda x: (*(x.new_empty(x.shape) for _ in range(2)), *_new_parameters(x, 3)),
)


def _norm_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    dx = None
    if ctx.needs_input_grad[0] or on_gpu(x):
        dx, dweight, dbias = library.layer_norm_backward.default(grad, x, weight, ctx.eps)
    else:
        dweight, dbias = library.layer_norm_backward_parameters.default(grad, x, ctx.eps)
    return dx, None if weight is None else dweight, dbias if ctx.needs_input_grad[2] else None, None


def _join_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    saved = ctx.saved_tensors
    dx, dresidual, dbias, dweight, dnorm = library.bias_dropout_add_layer_norm_backward.default(grad, *saved, ctx.eps)
    dbias, dweight = None if saved[1] is None else dbias, None if saved[5] is None else dweight
    return dx, dbias, dresidual, None, None, dweight, dnorm if ctx.needs_input_grad[6] else None, None


def _norm_composition(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    y = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps)
    y = y if weight is None else y * rows_of(weight, x)
    return y if bias is None else y + rows_of(bias, x)


def _join_composition(*args: Any) -> Tensor:
    return _norm_composition(add_composition(*args[:5]), *args[5:])


LONGEST_DROPPED = 2**18
"""Up to this length a GPU's kernel has room for the bits of a row's dropout."""

_norm = differentiable(library.layer_norm.default, saves(0, 1, eps=3), _norm_grad, _norm_composition)
_join = differentiable(
    library.bias_dropout_add_layer_norm.default, saves(*range(6), eps=7), _join_grad, _join_composition
)


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Normalise the last dimension of x [B, ..., D], with weight and bias [B, D] of each model.

    The backward pass computes the statistics again, which is cheaper than saving them because the row is in the cache.
    """
    return _norm(x, weight, bias, eps)


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
    call = _join_composition if p is not None and on_gpu(x) and x.shape[-1] > LONGEST_DROPPED else _join
    return call(x, bias, residual, p, rng, weight, norm_bias, eps)


fake("rms_norm_backward", lambda x, weight: (x.new_empty(x.shape), x.new_empty(0 if weight is None else weight.shape)))
fake("rms_norm_backward_weight", lambda x: x.new_empty(x.shape[0], x.shape[-1]))


def _rms_norm_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    if not ctx.needs_input_grad[0] and not on_gpu(x):
        return None, library.rms_norm_backward_weight.default(grad, x, ctx.eps), None
    dx, dweight = library.rms_norm_backward.default(grad, x, weight, ctx.eps)
    return dx, None if weight is None else dweight, None


def _rms_norm_composition(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    y = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    return y if weight is None else y * rows_of(weight, x)


_rms_norm = differentiable(library.rms_norm.default, saves(0, 1, eps=2), _rms_norm_grad, _rms_norm_composition)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Compute x / sqrt(mean(x²) + eps) * weight over the last dimension of x [B, ..., D]; the weight is [B, D]."""
    return (_rms_norm_composition if x.is_cuda and not cuda_kernels else _rms_norm)(x, weight, eps)


SMALLEST = 16
"""Least elements of a channel for which there is a kernel, if they are contiguous."""


def _result(x: Tensor) -> Tensor:
    """Make the tensor for the result; on a CPU it has the memory order of x."""
    return x.new_empty(x.shape) if x.is_cuda else laid_out(x)


fake("group_norm", _result)
fake("group_norm_backward", lambda x: (_result(x), *(x.new_empty(x.shape[0], x.shape[2]) for _ in range(2))))


def _group_norm_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    dx, dweight, dbias = library.group_norm_backward.default(grad, x, ctx.num_groups, weight, ctx.eps)
    return dx, None, None if weight is None else dweight, dbias if ctx.needs_input_grad[3] else None, None


def _group_norm_composition(
    x: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    groups = x.reshape(*x.shape[:2], num_groups, x.shape[2] // num_groups * math.prod(x.shape[3:]))
    variance, mean = torch.var_mean(groups, -1, correction=0, keepdim=True)
    y = ((groups - mean) * (variance + eps).rsqrt()).view(x.shape)
    shape = (len(x), 1, -1, *[1] * (x.dim() - 3))
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


_group_norm = differentiable(
    library.group_norm.default, saves(0, 2, num_groups=1, eps=4), _group_norm_grad, _group_norm_composition
)


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
        return _group_norm(x, num_groups, weight, bias, eps)
    if not x.requires_grad:  # torch's gradient of the weights alone crashes on channels that lie last
        x = x.flatten().view(x.shape)
    weights, biases = ([None] * len(x) if t is None else t for t in (weight, bias))
    own = zip(x, weights, biases, strict=True)
    return torch.stack([torch.nn.functional.group_norm(y, num_groups, w, b, eps) for y, w, b in own])
