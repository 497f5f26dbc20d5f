# SPDX-License-Identifier: MIT
"""Convolutions as products of the windows that filters see, on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import ops
from ...ops.device import on_cpu
from ...ops.shared import once
from ._whole_maps import sizes_of

Pair = tuple[int, int]

FEW_FILTERS, FEW_VECTORS, VECTOR = 16, 131072, 16
"""With fewer filters in a group, vectors of one model's windows up to which products are quicker than torch's
transposed convolution, channels last: 1.0 to 4 times its rate; half of it at 300,000 (`benchmarks/ops/grid.py`)."""


def _is_quicker(input: Tensor, weight: Tensor, groups: int) -> bool:
    outputs, height, width = weight.shape[2:]
    runs, length = (height, width * outputs) if groups == 1 else (groups * height * width, outputs)
    vectors = input.size(1) * input.shape[3:].numel() * runs * -(-length // VECTOR)
    return input.size(2) >= FEW_FILTERS * groups or vectors <= FEW_VECTORS


def takes_windows(input: Tensor, weight: Tensor) -> bool:
    """Return True if windows can be cut out of `input`: on a CPU, both in float32 or float64, without autocast."""
    known = input.dtype == weight.dtype and input.dtype in (torch.float32, torch.float64)
    return known and on_cpu(input) and not torch.is_autocast_enabled("cpu")


def transposed_of_windows(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor | None:
    """Return the transposed convolution of images `[B, N, I, H, W]` with filters `[B, I, O, KH, KW]`: a product,
    whose windows are added up; None where the library's is quicker."""
    stride, padding, output_padding, groups, dilation = rest
    if input.dim() != 5 or not takes_windows(input, weight) or input.numel() == 0:
        return None
    if input.size(2) != weight.size(1) or groups < 1 or input.size(2) % groups != 0:
        return None
    outputs = weight.size(2) * groups
    if bias is not None and (bias.size(1) != outputs or bias.dtype != weight.dtype):
        return None
    steps, edges, more, apart = _pair(stride), _pair(padding), _pair(output_padding), _pair(dilation)
    if min(*steps, *apart) < 1 or min(*edges, *more) < 0 or any(m >= s for m, s in zip(more, steps, strict=True)):
        return None
    ends = zip(input.shape[3:], weight.shape[3:], steps, edges, apart, more, strict=True)
    sides = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + m for n, k, s, p, d, m in ends]
    if min(sides) < 1:
        return None
    if 1 < groups == input.size(2) == outputs:
        return ops.transposed_depthwise(input, weight, bias, steps, edges, apart, sides)
    row = groups == 1 and apart[1] == steps[0] == weight.size(3) == 1 and steps[1] == weight.size(4)
    if row and edges == more == (0, 0):
        return _side_by_side(input, weight, bias)
    if not _is_quicker(input, weight, groups):
        return None
    return ops.transposed_convolution(input, weight, bias, steps, edges, apart, groups, sides)


def _side_by_side(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute the transposed convolution of rows of taps `[B, I, O, 1, K]` that are as long as the stride: a product,
    whose windows lie where they belong."""
    outputs, taps = weight.size(2), weight.size(4)
    filters = weight.squeeze(3).permute(0, 3, 2, 1).flatten(1, 2)  # [B, K * O, I]
    offsets = None if bias is None else bias.repeat(1, taps)
    rows = once(lambda one: one.movedim(2, -1).contiguous(), input)
    return ops.linear(rows, filters, offsets).unflatten(-1, (taps, outputs)).flatten(3, 4).movedim(-1, 2)


def _pair(size: Any) -> Pair:
    values = sizes_of(size)
    return values * 2 if len(values) == 1 else values  # type: ignore[return-value]
