# SPDX-License-Identifier: MIT
"""Group norm with each model's own weight and bias."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ._batch_norm import laid_out
from .library import cuda_kernels, differentiable, fake, library, tracing, transforming

_forward = library.group_norm.default
_backward = library.group_norm_backward.default

SMALLEST = 16
"""Least elements of a channel for which there is a kernel, if they are contiguous."""


def _result(x: Tensor) -> Tensor:
    """Make the tensor for the result; on a CPU it has the memory order of x."""
    return x.new_empty(x.shape) if x.is_cuda else laid_out(x)


fake("group_norm", _result)
fake("group_norm_backward", lambda x: (_result(x), *(x.new_empty(x.shape[0], x.shape[2]) for _ in range(2))))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.num_groups, weight, bias, ctx.eps = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, weight)


def _grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    dx, dweight, dbias = _backward(grad, x, ctx.num_groups, weight, ctx.eps)
    return dx, None, None if weight is None else dweight, dbias if ctx.has_bias else None, None


def _composition(x: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    groups = x.reshape(*x.shape[:2], num_groups, x.shape[2] // num_groups * math.prod(x.shape[3:]))
    variance, mean = torch.var_mean(groups, -1, correction=0, keepdim=True)
    y = ((groups - mean) * (variance + eps).rsqrt()).view(x.shape)
    shape = (len(x), 1, -1, *[1] * (x.dim() - 3))
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


_eager = differentiable(_forward, _setup, _grad, _composition)


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
        return _composition(x, num_groups, weight, bias, eps)
    if has_group_norm(x):
        result: Tensor = (_forward if tracing() else _eager)(x, num_groups, weight, bias, eps)
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
