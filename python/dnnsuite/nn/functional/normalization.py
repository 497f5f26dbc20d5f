# SPDX-License-Identifier: MIT
"""Normalisation as functions: statistics of each model's own batch, weights `[B, C]`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from ... import ops
from ...errors import InvalidArgument
from .._precision import computable, match
from ._models import each_model, shifted


def check_channels(x: torch.Tensor, parameters: Sequence[torch.Tensor | None], name: str) -> None:
    """Refuses an input that is not `[B, N, C, *]`, and parameters that are not `[B, C]`."""
    if x.dim() < 3:
        raise InvalidArgument(f"{name} takes [B, N, C, *] with the model in dimension 0; got {list(x.shape)}")
    wanted = (x.size(0), x.size(2))
    for parameter in parameters:
        if parameter is not None and tuple(parameter.shape) != wanted:
            raise InvalidArgument(
                f"{name} of {list(x.shape)} takes weights and statistics {list(wanted)}; got {list(parameter.shape)}"
            )


def check_batch(x: torch.Tensor, training: bool, name: str) -> None:
    """Refuses statistics of a single value, as torch does."""
    if training and x.size(0) > 0 and x.numel() == x.size(0) * x.size(2):
        raise InvalidArgument(
            f"{name}: Expected more than 1 value per channel when training, got input size {list(x.shape[1:])} "
            "of one model"
        )


def _wide(parameter: torch.Tensor | None) -> torch.Tensor | None:
    return None if parameter is None else computable(parameter)


def batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float | torch.Tensor = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.batch_norm` of `[B, N, C, *]`: each model over its own batch. Weight, bias and running
    statistics are `[B, C]`, the latter updated in place when training; `momentum` is a number or one per model `[B]`.
    """
    check_channels(input, (running_mean, running_var, weight, bias), "batch_norm")
    check_batch(input, training, "batch_norm")
    if not training and (running_mean is None or running_var is None):
        raise InvalidArgument("batch_norm with training=False needs running_mean and running_var")
    factors = momentum.tolist() if isinstance(momentum, torch.Tensor) else [momentum] * len(input)
    remaining = iter(factors)
    return each_model(
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, training, next(remaining), eps),
        *(input, running_mean, running_var, weight, bias),
    )


def instance_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float | torch.Tensor = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.instance_norm` of `[B, N, C, *]`; weight, bias and running statistics are `[B, C]`."""
    check_channels(input, (running_mean, running_var, weight, bias), "instance_norm")
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    factors = momentum.tolist() if isinstance(momentum, torch.Tensor) else [momentum] * len(input)
    remaining = iter(factors)
    return each_model(
        lambda x, m, v, w, b: F.instance_norm(x, m, v, w, b, True, next(remaining), eps),
        *(input, running_mean, running_var, weight, bias),
    )


def group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.group_norm` of `[B, N, C, *]`; weight and bias are `[B, C]`."""
    check_channels(input, (weight, bias), "group_norm")
    wide = computable(input), _wide(weight), _wide(bias)
    return each_model(lambda x, w, b: F.group_norm(x, num_groups, w, b, eps), *wide).to(input.dtype)


def _flat(
    x: torch.Tensor, normalized_shape: Sequence[int], parameters: Sequence[torch.Tensor | None], name: str
) -> torch.Tensor:
    """x with the normalised dimensions as one, after a check of every shape."""
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


def layer_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.layer_norm` of `[B, *, *normalized_shape]`; weight and bias `[B, *normalized_shape]`."""
    x = _flat(input, normalized_shape, (weight, bias), "LayerNorm")
    weight = None if weight is None else weight.flatten(1)
    bias = None if bias is None else bias.flatten(1)
    if input.device.type == "cpu" and (weight is None or weight.dtype == input.dtype):
        # Where all is in 16 bits it is computed in 32 and given back in 16, as torch does.
        y = ops.layer_norm(computable(x), _wide(weight), _wide(bias), eps)
        return y.view(input.shape).to(input.dtype)
    return ops.layer_norm(match(computable(x), weight), weight, bias, eps).view(input.shape)


def rms_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """`torch.nn.functional.rms_norm` of `[B, *, *normalized_shape]`; the weight is `[B, *normalized_shape]`."""
    _flat(input, normalized_shape, (weight,), "RMSNorm")
    return each_model(lambda x, w: F.rms_norm(x, list(normalized_shape), w, eps), input, weight)


def local_response_norm(
    input: torch.Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> torch.Tensor:
    """`torch.nn.functional.local_response_norm` of `[B, N, C, *]`."""
    check_channels(input, (), "local_response_norm")
    return each_model(lambda x: F.local_response_norm(x, size, alpha, beta, k), input)


def normalize(
    input: torch.Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: torch.Tensor | None = None
) -> torch.Tensor:
    """`torch.nn.functional.normalize`; `dim` counts without the model."""
    return F.normalize(input, p, shifted(dim, input, "normalize"), eps, out)
