# SPDX-License-Identifier: MIT
"""Convolutions of volumes on a CPU: products of windows in one operator, or torch's, by shapes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ... import ops
from ...ops.device import on_cpu
from ...ops.windows import output_pixels
from ._convolution_rules import FEW_ON_OLD, ON_OLD, VECTOR, Size, fits
from ._whole_maps import sizes_of
from ._windows import takes_windows

Triple = tuple[int, int, int]

MANY_PRODUCTS, MANY_VECTORS = 32_000_000, 49_152
"""Multiplications of one model up to which products of windows are quicker than oneDNN's convolution, channels last:
1.1 times its rate at 28,000,000, 0.89 times at 43,000,000. Of a group of few channels, vectors of one model's windows
up to which they are: cutting them is most of the work (`benchmarks/ops/grid.py`)."""

FIRST_CHANNELS, FEW_OUTPUTS, MANY_OUTPUTS = 3, 16, 32
"""Channels of a network's input, whose gradients are products of windows from `MANY_OUTPUTS` filters on, and from
`FEW_OUTPUTS` on with a stride: 1.2 to 2.8 times oneDNN's rate."""

FEW_NUMBERS = 20_480
"""Numbers of a single sample, without its width, up to which torch does not ask oneDNN."""


def triple(size: Size) -> Triple:
    """Convert a stride, padding or dilation of volumes to three numbers."""
    values = sizes_of(size)
    return values * 3 if len(values) == 1 else values  # type: ignore[return-value]


def is_pointwise(input: Tensor, weight: Tensor, stride: Size, padding: str | Size, dilation: Size, groups: int) -> bool:
    """Return True for filters of one tap that meet each pixel of volumes once: those of images do the same."""
    if input.dim() != 6 or weight.shape[3:] != (1, 1, 1) or not on_cpu(input):
        return False
    return not isinstance(padding, str) and (triple(stride), triple(padding)) == ((1, 1, 1), (0, 0, 0))


def volume_convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Size, padding: str | Size, dilation: Size, groups: int
) -> Tensor | None:
    """Convolve volumes `[B, N, I, D, H, W]` with filters `[B, O, I / groups, KD, KH, KW]`; None where torch's
    convolution is quicker, or has an error message for it."""
    if input.dim() != 6 or isinstance(padding, str) or not takes_windows(input, weight):
        return None
    if bias is not None and (bias.dtype != weight.dtype or bias.size(1) != weight.size(1)):
        return None
    steps = triple(stride), triple(padding), triple(dilation)
    if groups < 1 or not fits(input, weight, *steps, groups):
        return None
    if not _pays(input, weight, *steps, groups):
        return None
    return ops.window_convolution(input, weight, bias, *steps, groups)


def _pays(
    input: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> bool:
    """Return True if products of windows are quicker than torch's convolution."""
    inputs, planes, height, width = weight.shape[2:]
    pixels = input.size(1) * output_pixels(input.shape[3:], weight.shape[3:], stride, padding, dilation)
    products = pixels * weight.shape[1:].numel()
    if ON_OLD:
        return products <= FEW_ON_OLD
    if inputs > 1 and groups == 1 and not _is_for_onednn(input, weight, stride, dilation):
        return True
    if inputs >= VECTOR and groups == 1:
        return products <= MANY_PRODUCTS
    if input.requires_grad and groups == 1 and _fills_registers(weight, stride):
        return True
    runs, length = (1, width * inputs) if groups == 1 and dilation[2] == 1 else (groups * width, inputs)
    return pixels * planes * height * runs * -(-length // VECTOR) <= MANY_VECTORS


def _fills_registers(weight: Tensor, stride: Sequence[int]) -> bool:
    """Return True for filters of few channels that are many, or apart."""
    outputs, inputs = weight.shape[1:3]
    if min(stride) > 1:
        return outputs >= (FEW_OUTPUTS if inputs <= FIRST_CHANNELS else MANY_OUTPUTS)
    return inputs <= FIRST_CHANNELS and outputs >= MANY_OUTPUTS


def _is_for_onednn(input: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int]) -> bool:
    """Return True if torch asks oneDNN to convolve in one group. Its own convolution, which it takes else, is 2 to 5
    times as slow."""
    samples, (height, width) = input.size(1), weight.shape[-2:]
    apart = (*stride, *dilation) != (1,) * 6
    if input.dtype != torch.float32 or not (apart or samples >= 16 or (height, width) != (1, 1)):
        return False
    return samples > 1 or min(height, width) > 3 or input.shape[2:5].numel() > FEW_NUMBERS
