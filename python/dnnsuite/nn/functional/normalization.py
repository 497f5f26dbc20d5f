# SPDX-License-Identifier: MIT
"""Normalisation functions: statistics of each model's batch, weights `[B, C]`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ... import ops
from ...errors import InvalidArgument
from ...ops.device import on_cpu
from ...ops.library import cuda_kernels
from .._models import SIXTEEN_BIT, computable, each_model, match, shifted
from ..model_tensor import state


def check_channels(x: Tensor, parameters: Sequence[Tensor | None], name: str) -> None:
    """Refuse an input other than `[B, N, C, *]`, and parameters other than `[B, C]`."""
    if x.dim() < 3:
        raise InvalidArgument(f"{name} takes [B, N, C, *] with the model in dimension 0; got {list(x.shape)}")
    shape = x.shape
    wanted = (shape[0], shape[2])
    for parameter in parameters:
        if parameter is not None and parameter.shape != wanted:
            raise InvalidArgument(
                f"{name} of {list(shape)} takes weights and statistics {list(wanted)}; got {list(parameter.shape)}"
            )


def check_batch(x: Tensor, training: bool, name: str) -> None:
    """Refuse statistics of a single value, as torch does."""
    if training and 0 < x.numel() == x.size(0) * x.size(2):
        raise InvalidArgument(
            f"{name}: Expected more than 1 value per channel when training, got input size {list(x.shape[1:])} "
            "of one model"
        )


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
    *,
    tracked: Tensor | None = None,
) -> Tensor:
    """`torch.nn.functional.batch_norm` of `[B, N, C, *]`; each model is normalised over its own batch. Weight, bias and
    running statistics are `[B, C]`; the statistics are updated in place in training. `momentum` is one number, or one
    per model `[B]`. `tracked` `[B]` counts the batches in the statistics."""
    return batch_norm_act(input, running_mean, running_var, weight, bias, training, momentum, eps, tracked=tracked)


def batch_norm_act(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
    activation: str = "none",
    negative_slope: float = 0.01,
    residual: Tensor | None = None,
    *,
    tracked: Tensor | None = None,
) -> Tensor:
    """Compute `activation(batch_norm(input, ...) + residual)` in one forward pass and one backward pass.

    `activation` is 'none', 'relu', 'relu6', 'leaky_relu' (with `negative_slope`), 'hardswish' or 'silu'; the residual
    has the input's shape. The result has the input's memory order. `tracked` `[B]` counts the batches in the running
    statistics.
    """
    if residual is not None and residual.shape != input.shape:
        raise InvalidArgument(
            f"residual {list(residual.shape)} is added to {list(input.shape)}: the shapes must be equal"
        )
    parameters = (weight, bias, running_mean, running_var)
    x, weight, bias, mean, var = _prepared(input, parameters, training, activation, ops.NORM_ACTIVATIONS)
    added = match(residual, x)
    known_running = running_mean is not None and running_var is not None and training and input.numel() > 0
    y = None
    if known_running and isinstance(momentum, float) and not state.may_stop:
        call: Any = ops.batch_norm_act_running
        options = eps, activation, negative_slope, momentum, tracked
        y = call(x, weight, bias, added, running_mean, running_var, *options)
    if y is None:
        if tracked is not None:
            tracked.add_(1)
        arguments = (x, weight, bias, added, mean, var, eps, activation, negative_slope)
        followed = parameters[2:] if known_running else (None, None)
        y = _with_statistics(ops.batch_norm_act, arguments, followed, momentum)[0]
    return y if y.dtype == input.dtype else y.to(input.dtype)


def has_batch_norm_max(input: Tensor) -> bool:
    """Return True if `batch_norm_max` is faster: points `[B, N, C, L]` with the channels last in memory, on a CPU."""
    return (
        input.dim() == 4
        and on_cpu(input)
        and input.numel() > 0
        and input.dtype in (torch.float32, torch.float64)
        and input.movedim(2, -1).is_contiguous()
    )


def batch_norm_max(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
    activation: str = "none",
    negative_slope: float = 0.01,
) -> tuple[Tensor, Tensor]:
    """Compute the maximum over L of `activation(batch_norm(input, ...))` of points `[B, N, C, L]`, and its index, both
    `[B, N, C, 1]`. The normalised points are never stored: each channel's maximum, or minimum, is enough.

    `activation` is monotonic: 'none', 'relu', 'relu6', or 'leaky_relu' (with `negative_slope` >= 0).
    """
    parameters = (weight, bias, running_mean, running_var)
    known = _prepared(input, parameters, training, activation, ops.MAX_ACTIVATIONS)
    arguments = (*known, eps, activation, negative_slope)
    followed = parameters[2:] if training else (None, None)
    values, indices, _ = _with_statistics(ops.batch_norm_max, arguments, followed, momentum)
    return values.to(input.dtype), indices


def _prepared(
    input: Tensor, parameters: Sequence[Any], training: bool, activation: str, known: Iterable[str]
) -> tuple[Any, ...]:
    """Cast input, and of the `parameters` weight, bias and given statistics (None: the batch's), to the dtype of the
    computation."""
    weight, bias, running_mean, running_var = parameters
    # A batch that all models share stands here for one; the statistics that take it in are those of all.
    stands_for_all = training and len(input) == 1
    check_channels(input, parameters[:2] if stands_for_all else parameters, "batch_norm")
    check_batch(input, training, "batch_norm")
    if not training and (running_mean is None or running_var is None):
        raise InvalidArgument("batch_norm with training=False needs running_mean and running_var")
    if activation not in known:
        raise InvalidArgument(f"activation must be one of {', '.join(map(repr, known))}; got {activation!r}")
    dtype = input.dtype
    if dtype not in SIXTEEN_BIT and all(p is None or p.dtype == dtype for p in parameters):
        return input, weight, bias, *((None, None) if training else (running_mean, running_var))
    x = computable(input)
    if x.dtype in SIXTEEN_BIT and cuda_kernels and any(match(p, x) is not p for p in parameters):
        # Sums and parameters have 32 bits, what is moved has 16.
        weight, bias, *wide = (None if p is None else p.float() for p in parameters)
        mean, var = (None, None) if training else wide
        return x, weight, bias, mean, var
    for parameter in (running_mean, weight):  # a norm of 16 bits whose parameters have 32 is computed in 32
        x = x if parameter is None else x.to(torch.promote_types(x.dtype, parameter.dtype))
    mean, var = (None, None) if training else (match(running_mean, x), match(running_var, x))
    return x, match(weight, x), match(bias, x), mean, var


def _with_statistics(
    operator: Callable[..., Any], arguments: tuple[Any, ...], running: Sequence[Tensor | None], momentum: float | Tensor
) -> tuple[Tensor, ...]:
    """Call `operator(*arguments)`; update the `running` mean and variance, if any, with its last result `[3, B, C]`.

    If the call may not return, because a checkpoint stops it early, they are updated before.
    """
    mean, variance = running
    if mean is None or variance is None:
        return operator(*arguments)
    if state.may_stop:
        with torch.no_grad():
            statistics = operator(*arguments)[-1]
    else:
        results = operator(*arguments)
        statistics = results[-1]
    _take_in(mean, statistics[0], momentum)
    _take_in(variance, statistics[2], momentum)
    return operator(*arguments) if state.may_stop else results


@torch.no_grad()
def _take_in(running: Tensor, batch: Tensor, momentum: float | Tensor) -> None:
    """Move a running statistic [B, C] towards the batch's, by each model's momentum."""
    if isinstance(momentum, Tensor):
        momentum = momentum.to(running).unsqueeze(1)
    running.lerp_(match(batch, running), momentum)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`torch.nn.functional.instance_norm` of `[B, N, C, *]`; weight, bias and running statistics are `[B, C]`."""
    check_channels(input, (running_mean, running_var, weight, bias), "instance_norm")
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    untracked = running_mean is None or running_var is None
    if untracked and input.numel() > 0 and ops.has_group_norm(input):
        check_batch(input[:, :1], True, "instance_norm")
        return group_norm(input, input.size(2), weight, bias, eps)  # each channel a group
    # Statistics are wanted, or channels are short and contiguous: each sample is a model of its own, a batch norm of
    # B * N models with one sample each.
    models, samples = input.shape[:2]

    def each(parameter: Tensor | None) -> Tensor | None:
        if parameter is None:
            return None
        return match(parameter.unsqueeze(1).expand(-1, samples, -1).reshape(-1, input.size(2)), x)

    x = computable(input).reshape(models * samples, 1, *input.shape[2:])
    check_batch(x, True, "instance_norm")
    y, statistics = ops.batch_norm_act(x, each(weight), each(bias), eps=eps)
    if running_mean is not None and running_var is not None and input.numel() > 0:
        mean, _, var = statistics.view(3, models, samples, -1).mean(2)
        _take_in(running_mean, mean, momentum)
        _take_in(running_var, var, momentum)
    return y.view(input.shape).to(input.dtype)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """`torch.nn.functional.group_norm` of `[B, N, C, *]`; weight and bias are `[B, C]`."""
    check_channels(input, (weight, bias), "group_norm")
    if input.size(2) % num_groups != 0:
        raise InvalidArgument(f"group_norm: {input.size(2)} channels are not divisible into {num_groups} groups")
    x = computable(input)
    return ops.group_norm(x, num_groups, match(weight, x), match(bias, x), eps).to(input.dtype)


def _flat(x: Tensor, normalized_shape: Sequence[int], parameters: Sequence[Tensor | None], name: str) -> Tensor:
    """Check all shapes; flatten the normalised dimensions of x to one."""
    shape = tuple(normalized_shape)
    dims, inner = len(shape), ", ".join(map(str, shape))
    if dims == 0 or tuple(x.shape[-dims:]) != shape or x.dim() <= dims:
        raise InvalidArgument(f"{name} over [{inner}] takes [B, ..., {inner}]; got {list(x.shape)}")
    for parameter in parameters:
        if parameter is not None and tuple(parameter.shape) != (x.size(0), *shape):
            raise InvalidArgument(
                f"{name} over [{inner}] takes a weight [{x.size(0)}, {inner}]; got {list(parameter.shape)}"
            )
    return x if dims == 1 else x.flatten(-dims)


def _flat_parameter(parameter: Tensor | None) -> Tensor | None:
    """Flatten a parameter `[B, *normalized_shape]` to `[B, D]`."""
    return parameter if parameter is None or parameter.dim() == 2 else parameter.flatten(1)


def _shaped(y: Tensor, input: Tensor) -> Tensor:
    """View a result in the input's shape, if it has another: a view has a gradient of its own."""
    return y if y.dim() == input.dim() else y.view(input.shape)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """`torch.nn.functional.layer_norm` of `[B, *, *normalized_shape]`; weight and bias `[B, *normalized_shape]`."""
    x = _flat(input, normalized_shape, (weight, bias), "LayerNorm")
    weight, bias = _flat_parameter(weight), _flat_parameter(bias)
    if on_cpu(input) and (weight is None or input.dtype in SIXTEEN_BIT or weight.dtype == input.dtype):
        # 16 bits are computed in 32 and given back in 16, as torch does, whatever the parameters have.
        wide, wide_bias = (None if p is None else computable(p) for p in (weight, bias))
        y = ops.layer_norm(computable(x), wide, wide_bias, eps)
        return _shaped(y, input).to(input.dtype)
    return _shaped(ops.layer_norm(match(computable(x), weight), weight, bias, eps), input)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """`torch.nn.functional.rms_norm` of `[B, *, *normalized_shape]`; the weight is `[B, *normalized_shape]`."""
    x = computable(_flat(input, normalized_shape, (weight,), "RMSNorm"))
    flat = match(_flat_parameter(weight), x)
    smallest = torch.finfo(input.dtype).eps if eps is None else eps
    y = _shaped(ops.rms_norm(x, flat, smallest), input)
    if weight is None or on_cpu(input):
        return y.to(input.dtype)
    return y.to(torch.promote_types(input.dtype, weight.dtype))


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """`torch.nn.functional.local_response_norm` of `[B, N, C, *]`."""
    check_channels(input, (), "local_response_norm")
    pixels = input.movedim(2, -1)
    if input.numel() == 0 or not pixels.is_contiguous():
        return each_model(lambda x: F.local_response_norm(x, size, alpha, beta, k), input)
    # The mean of neighbouring channels, which lie side by side, as that of a line.
    squares = F.pad(pixels.square().view(-1, 1, pixels.size(-1)), (size // 2, (size - 1) // 2))
    level = F.avg_pool1d(squares, size, 1).view(pixels.shape).mul(alpha).add(k).pow(beta)
    return (pixels / level).movedim(-1, 2)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.normalize`; `dim` counts without the model."""
    return F.normalize(input, p, shifted(dim, input, "normalize"), eps, out)
