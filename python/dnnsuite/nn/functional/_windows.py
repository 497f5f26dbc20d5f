# SPDX-License-Identifier: MIT
"""Convolutions as products of the windows that filters see, on a CPU. A small one is quicker so than by the library,
which rearranges filters at every call (`benchmarks/ops/bench_convolution.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import ops
from ...ops.device import on_cpu
from ._whole_maps import sizes_of

Pair = tuple[int, int]


MOST = 10_000_000
"""Multiplications of one model up to which a product of windows takes 0.4 to 0.97 of the time of torch's convolution,
channels last, forward and backward: the gradient of the filters 0.2 to 0.7. Of twice as many it takes up to 1.2."""


FEW_PIXELS = 2048
"""Pixels that come out of a single filter of one channel up to which windows are quicker, 2 to 3 times: their product
has a single column."""


def _is_quicker(pixels: int, inputs: int, outputs: int, taps: int) -> bool:
    if inputs == outputs == 1 and pixels > FEW_PIXELS:
        return False
    return taps > 1 and pixels * inputs * outputs * taps <= MOST


def takes_windows(input: Tensor, weight: Tensor) -> bool:
    """Return True if windows can be cut out of `input`: on a CPU, both in float32 or float64, without autocast."""
    known = input.dtype == weight.dtype and input.dtype in (torch.float32, torch.float64)
    return known and on_cpu(input) and not torch.is_autocast_enabled("cpu")


def transposed_of_windows(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor | None:
    """Return the transposed convolution of images `[B, N, I, H, W]` with filters `[B, I, O, KH, KW]`: a product,
    whose windows are added up; None where the library's is quicker."""
    if input.dim() != 5 or groups != 1 or set(_pair(dilation)) != {1} or not takes_windows(input, weight):
        return None
    if input.size(2) != weight.size(1) or len(input) == 0:
        return None
    steps, edges, more = _pair(stride), _pair(padding), _pair(output_padding)
    inputs, outputs, *kernel = weight.shape[1:]
    if min(steps) < 1 or min(edges) < 0 or any(m >= s for m, s in zip(more, steps, strict=True)):
        return None
    if not _is_quicker(input.shape[1] * input.shape[3:].numel(), inputs, outputs, kernel[0] * kernel[1]):
        return None
    sides = [
        (n - 1) * s - 2 * p + k + m
        for n, s, p, k, m in zip(input.shape[3:], steps, edges, kernel, more, strict=True)
    ]
    if min(sides) < 1:
        return None
    pixels = input.movedim(2, -1)
    products = ops.matmul(pixels.flatten(1, 3), weight.movedim(2, -1).flatten(2))
    y = ops.add_patches(products.unflatten(1, pixels.shape[1:4]), sides, kernel, steps, edges)
    return (y if bias is None else y + bias[:, None, None, None]).movedim(-1, 2)


def _pair(size: Any) -> Pair:
    values = sizes_of(size)
    return values * 2 if len(values) == 1 else values  # type: ignore[return-value]
