# SPDX-License-Identifier: MIT
"""Convolutions of whole maps as products: the last layer of a LeNet or of a DCGAN's discriminator, in 16 bits also the
first one of its generator. torch's convolution takes 2 to 10 times as long (`benchmarks/ops/bench_convolution.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import ops
from ...ops.device import on_cpu
from ...ops.shared import once
from .._precision import computable, match


def whole_map(x: Tensor, weight: Tensor, padding: tuple[int, int]) -> tuple[Tensor, Tensor] | None:
    """Return maps `[B, N, 1, 1, I * H * W]` and a matrix `[B, O, I * H * W]` whose product is the convolution of one
    group; None if the filters do not cover the whole map.

    If their memory orders differ, the smaller one is copied.
    """
    if weight.shape[3:] != x.shape[3:] or padding != (0, 0):
        return None
    if weight[0].numel() < x[0].numel() and x.movedim(2, -1).is_contiguous():
        x, weight = x.movedim(2, -1), weight.movedim(2, -1)
    rows = once(lambda one: one.flatten(2), x)
    return rows[:, :, None, None], weight.flatten(2)


def from_single_pixels(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor | None:
    """Compute the transposed convolution of maps of one pixel `[B, N, I, 1, 1]`, weight `[B, I, O, H, W]`; None for
    others."""
    stride, padding, output_padding, groups, dilation = rest
    single = input.dim() == 5 and input.shape[3:] == (1, 1) and groups == 1 and input.size(0) > 0
    if not (single and on_cpu(input) and input.size(2) == weight.size(1)):
        return None
    plain = all(set(sizes_of(size)) <= {value} for size, value in ((padding, 0), (output_padding, 0), (dilation, 1)))
    autocast = torch.is_autocast_enabled("cpu") and torch.float64 not in (input.dtype, weight.dtype)
    alike = autocast or input.dtype == weight.dtype
    if not (plain and alike and input.is_floating_point() and min(sizes_of(stride)) > 0):
        return None
    wide = computable(weight)
    y = ops.matmul(match(computable(input), wide).flatten(2), wide.flatten(2)).unflatten(-1, weight.shape[2:])
    if bias is not None:
        y = y + match(bias, wide)[:, None, :, None, None]
    return y.to(torch.get_autocast_dtype("cpu") if autocast else input.dtype)


def sizes_of(size: Any) -> tuple[int, ...]:
    """Convert a stride, padding or dilation to a tuple: one number for all dimensions, or one for each."""
    return (size,) if isinstance(size, int) else tuple(size)
