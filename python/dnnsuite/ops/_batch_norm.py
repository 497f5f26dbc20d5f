# SPDX-License-Identifier: MIT
"""Batch norm with the residual and the activation that follow it, in one pass forward and one backward; and the maximum
over points of a batch norm and its activation, without computing them for all points.

A norm keeps the order of a channel's numbers, or reverses it if the weight is negative, and a ReLU keeps it: the
maximum is the result of the largest, or smallest, input. The gradient needs one point per channel and two sums.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ._pool import places_of
from .device import on_gpu
from .library import (
    applied,
    below_autograd,
    cuda_kernels,
    differentiable,
    fake,
    fakes_like,
    gradients_through,
    library,
    remember,
    tracing,
    transforming,
)

_running = library.batch_norm_act_running_.default
_counted = library.batch_norm_act_counted_.default
_backward = library.batch_norm_act_backward.default
_backward_parameters = library.batch_norm_act_backward_parameters.default

_SIXTEEN_BIT = (torch.bfloat16, torch.float16)

#: What may follow the norm in the same pass.
NORM_ACTIVATIONS = {
    "none": lambda z, slope: z,
    "relu": lambda z, slope: F.relu(z),
    "relu6": lambda z, slope: F.relu6(z),
    "leaky_relu": F.leaky_relu,
    "hardswish": lambda z, slope: F.hardswish(z),
    "silu": lambda z, slope: F.silu(z),
}


def laid_out(x: Tensor, in_turn: bool = False) -> Tensor:
    """Make an empty packed tensor like x [B, N, C, *]: channels last if x is, else contiguous. With `in_turn` the
    samples of the models interleave if those of x do, as after a grouped convolution."""

    def packed(t: Tensor) -> bool:
        step = 1
        for size, stride in zip(reversed(t.shape[1:]), reversed(t.stride()[1:]), strict=True):
            if size != 1 and stride != step:
                return False
            step *= max(size, 1)
        return True

    if x.is_contiguous():
        return torch.empty_like(x)
    last = x.movedim(2, -1)
    if last.is_contiguous():
        return torch.empty_like(x)
    if packed(x):
        return x.new_empty(x.shape)
    if packed(last):
        return x.new_empty(last.shape).movedim(-1, 2)
    if in_turn and x.transpose(0, 1).is_contiguous():
        return x.new_empty(x.transpose(0, 1).shape).transpose(0, 1)
    pixels = last.movedim(0, -2)  # [N, *, B, C]
    if in_turn and pixels.is_contiguous():
        return x.new_empty(pixels.shape).movedim(-2, 0).movedim(-1, 2)
    return x.new_empty(x.shape)


def new_statistics(x: Tensor) -> Tensor:
    """Make a tensor for the statistics `[3, B, C]` of x `[B, N, C, *]`."""
    return x.new_empty(3, x.shape[0], x.shape[2], dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)


fake("batch_norm_act", lambda x: (laid_out(x, True), new_statistics(x)))
fakes_like(None, "batch_norm_act_running_", "batch_norm_act_counted_")


def _new_gradients(x: Tensor, weight: Tensor | None, residual: Tensor | None) -> tuple[Tensor, ...]:
    dtype = x.dtype if weight is None else weight.dtype
    parameters = (x.new_empty(x.shape[0], x.shape[2], dtype=dtype) for _ in range(2))
    return laid_out(x, True), *parameters, x.new_empty(0) if residual is None else laid_out(x, True)


fake("batch_norm_act_backward", _new_gradients)
fake("batch_norm_act_backward_parameters", lambda x: tuple(x.new_empty(x.shape[0], x.shape[2]) for _ in range(2)))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, residual, given, _, _, activation, slope = inputs
    _, statistics = output
    plain = activation == "none"  # then the residual's gradient is that of the result
    ctx.activation, ctx.slope, ctx.training = activation, slope, given is None
    ctx.has_bias, ctx.adds = bias is not None, residual is not None
    ctx.save_for_backward(x, weight, None if plain else bias, None if plain else residual, statistics)
    ctx.set_materialize_grads(False)


def _setup_both(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _setup(ctx, inputs, output)
    ctx.mark_non_differentiable(output[1])


def _grad(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 9
    x, weight, bias, residual, statistics = ctx.saved_tensors[:5]
    dx = dresidual = None
    if ctx.needs_input_grad[0] or residual is not None or on_gpu(x):
        dx, dweight, dbias, dresidual = _backward(
            grad, x, weight, bias, residual, statistics, ctx.training, ctx.activation, ctx.slope
        )
    else:
        dweight, dbias = _backward_parameters(grad, x, weight, bias, statistics, ctx.activation, ctx.slope)
    if ctx.adds and residual is None:
        dresidual = grad
    dweight, dbias = None if weight is None else dweight, dbias if ctx.has_bias else None
    return dx, dweight, dbias, dresidual if ctx.adds else None, *(None,) * 5


def batch_norm_composition(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    eps: float,
    activation: str,
    slope: float,
) -> tuple[Tensor, ...]:
    """Compose the operator of torch's functions."""
    dtype = x.dtype
    x = x.float() if dtype in _SIXTEEN_BIT else x

    def wide(parameter: Tensor) -> Tensor:
        return parameter.view(len(parameter), 1, -1, *[1] * (x.dim() - 3))

    unbiased = variance
    if mean is None or variance is None:
        dims = [d for d in range(1, x.dim()) if d != 2]
        variance, mean = torch.var_mean(x, dims, correction=0)
        values = max(x.numel() // max(mean.numel(), 1), 2)
        unbiased = variance * (values / (values - 1))
    inverse = (variance + eps).rsqrt()
    scale = inverse if weight is None else inverse * weight
    z = (x - wide(mean)) * wide(scale)
    z = z if bias is None else z + wide(bias)
    z = z if residual is None else z + residual
    assert unbiased is not None
    y = NORM_ACTIVATIONS[activation](z, slope)
    return y.to(dtype), torch.stack([mean, inverse, unbiased])


_eager = differentiable(library.batch_norm_act.default, _setup_both, _grad, batch_norm_composition)


def batch_norm_act(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    mean: Tensor | None = None,
    variance: Tensor | None = None,
    eps: float = 1e-5,
    activation: str = "none",
    slope: float = 0.01,
) -> tuple[Tensor, Tensor]:
    """Compute activation(batch_norm(x) + residual) for x [B, N, C, *]; each model is normalised over its own batch.

    Args:
        x: contiguous, or with the channels last in memory. On CUDA the samples of a model may have gaps between them,
            for example after a grouped convolution. Other layouts are copied first. The result has the layout of x.
        weight, bias: [B, C]. On CUDA they, `mean` and `variance` may be 32-bit if x is 16-bit.
        residual: tensor of the shape of x.
        mean, variance: statistics [B, C] that replace those of the batch.
        activation: 'none', 'relu', 'relu6', 'leaky_relu' (with `slope`), 'hardswish' or 'silu'.

    Returns:
        The result, and [3, B, C] with the mean, 1 / deviation, and the unbiased variance for running statistics.
    """
    call: Any = batch_norm_composition if x.is_cuda and not cuda_kernels else _eager
    return call(x, weight, bias, residual, mean, variance, eps, activation, slope)


def _train(x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    """Return result and statistics of a batch; updates the running statistics, and `tracked`, which counts batches.
    The arguments are those of `batch_norm_act_running`, in the operator's order."""
    weight, bias, residual, mean, variance, tracked, *rest = args
    y = laid_out(x, True).data  # no view: torch refuses to write in place into one that a Function has made
    statistics = new_statistics(x)
    running = [mean, variance] if tracked is None else [mean, variance, tracked]
    with below_autograd():
        call = _running if tracked is None else _counted
        call(y, statistics, *running, x, weight, bias, residual, *rest)
    torch.autograd.graph.increment_version(running)
    return y, statistics


class _Train(torch.autograd.Function):
    """Compute `_eager` on a batch in training, with a gradient; the running statistics have none."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        output = _train(*args)
        known = (*args[:4], None, None, *args[7:10])
        _setup(ctx, known, output)
        remember(ctx, known)
        return output[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return *gradients_through(batch_norm_composition, ctx, grads), None, None
        return *_grad(ctx, *grads), None, None


_train_with_gradient = applied(_Train)


def batch_norm_act_running(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    running_mean: Tensor,
    running_variance: Tensor,
    eps: float,
    activation: str,
    slope: float,
    momentum: float,
    tracked: Tensor | None = None,
) -> Tensor | None:
    """Compute `batch_norm_act` on a training batch, and update the running statistics in the same pass.

    The running statistics are [B, C]; `tracked` [B] counts batches. If the statistics have another dtype than the sums,
    or models share them, nothing is done and the result is None.
    """
    sums = torch.float64 if x.dtype == torch.float64 else torch.float32
    running, models = (running_mean, running_variance), x.size(0)
    known = True
    for t in running:  # a batch that all models share may stand for one
        known = known and t.dtype == sums and len(t) == models and t.is_contiguous() and not t.requires_grad
    if tracked is not None:
        known &= tracked.dtype == torch.int64 and tracked.is_contiguous() and tracked.device == x.device
    has_kernels = x.is_cpu or (x.is_cuda and cuda_kernels)
    if not (known and has_kernels) or tracing() or transforming():
        return None
    arguments = (x, weight, bias, residual, *running, tracked, eps, activation, slope, momentum)
    return _train_with_gradient(*arguments) if torch.is_grad_enabled() else _train(*arguments)[0]


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
