# SPDX-License-Identifier: MIT
"""Pooling as functions. It knows no model: each sample is pooled for itself, so the models are one large batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from ._samples import each_sample, over_samples

max_pool1d = over_samples(F.max_pool1d, "max_pool1d", 1)
max_pool2d = over_samples(F.max_pool2d, "max_pool2d", 2)
max_pool3d = over_samples(F.max_pool3d, "max_pool3d", 3)
max_pool1d_with_indices = over_samples(F.max_pool1d_with_indices, "max_pool1d_with_indices", 1)
max_pool2d_with_indices = over_samples(F.max_pool2d_with_indices, "max_pool2d_with_indices", 2)
max_pool3d_with_indices = over_samples(F.max_pool3d_with_indices, "max_pool3d_with_indices", 3)
avg_pool1d = over_samples(F.avg_pool1d, "avg_pool1d", 1)
avg_pool2d = over_samples(F.avg_pool2d, "avg_pool2d", 2)
avg_pool3d = over_samples(F.avg_pool3d, "avg_pool3d", 3)
adaptive_avg_pool1d = over_samples(F.adaptive_avg_pool1d, "adaptive_avg_pool1d", 1)
_adaptive_avg_pool2d = over_samples(F.adaptive_avg_pool2d, "adaptive_avg_pool2d", 2)
adaptive_avg_pool3d = over_samples(F.adaptive_avg_pool3d, "adaptive_avg_pool3d", 3)
adaptive_max_pool1d = over_samples(F.adaptive_max_pool1d, "adaptive_max_pool1d", 1)
adaptive_max_pool2d = over_samples(F.adaptive_max_pool2d, "adaptive_max_pool2d", 2)
adaptive_max_pool3d = over_samples(F.adaptive_max_pool3d, "adaptive_max_pool3d", 3)
lp_pool1d = over_samples(F.lp_pool1d, "lp_pool1d", 1)
lp_pool2d = over_samples(F.lp_pool2d, "lp_pool2d", 2)
lp_pool3d = over_samples(F.lp_pool3d, "lp_pool3d", 3)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """`torch.nn.functional.adaptive_avg_pool2d` of `[B, N, C, H, W]`, or without N."""
    if output_size in (1, (1, 1), [1, 1]) and input.dim() in (4, 5) and input.shape[-2:].numel() > 0:
        # What torch computes, less the strides it gives the result in place, which no recorded step can repeat.
        return input.mean((-2, -1), keepdim=True)
    return _adaptive_avg_pool2d(input, output_size)


def _unpool(plain: Any, name: str, dims: int, input: Tensor, indices: Tensor, *args: Any) -> Tensor:
    result: Tensor = each_sample(
        lambda x, i: plain(x.contiguous(), i.contiguous(), *args), name, dims, input, indices
    )
    return result


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """`torch.nn.functional.max_unpool1d`; input and indices are `[B, N, C, L]`, or without N."""
    arguments = (kernel_size, stride, padding, output_size)
    return _unpool(F.max_unpool1d, "max_unpool1d", 1, input, indices, *arguments)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """`torch.nn.functional.max_unpool2d`; input and indices are `[B, N, C, H, W]`, or without N."""
    arguments = (kernel_size, stride, padding, output_size)
    return _unpool(F.max_unpool2d, "max_unpool2d", 2, input, indices, *arguments)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """`torch.nn.functional.max_unpool3d`; input and indices are `[B, N, C, D, H, W]`, or without N."""
    arguments = (kernel_size, stride, padding, output_size)
    return _unpool(F.max_unpool3d, "max_unpool3d", 3, input, indices, *arguments)
