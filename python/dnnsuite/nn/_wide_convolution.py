# SPDX-License-Identifier: MIT
"""Convolutions of a batch that all models share, in one call with the filters of all of them.

Small ones take a half to a third of the time of B calls. Results must have the bits of one model alone; this is tried
once for each geometry.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
from torch import Tensor

from .. import ops
from .._torch import transforming
from ..ops.windows import output_side

FEW_NUMBERS = 262144
"""Elements of all models' results up to which one call is faster; larger results do not fit the caches
(`benchmarks/ops/grid.py`)."""


def wide_convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, geometry: ops.ConvolutionGeometry
) -> Tensor | None:
    """Convolve `[B, N, C, H, W]` with the models' filters in one call; None if that is slower, or gives other bits."""
    *_, transposed, _, groups = geometry
    if input.stride(0) != 0 or len(input) < 2 or transposed or input.requires_grad:
        return None
    if groups > 1 and weight.size(2) == 1:  # torch is slow with several filters for each channel
        return None
    if torch.compiler.is_compiling() or transforming() or input.dtype != torch.float32:
        return None
    if weight.size(0) * weight.size(1) * input.size(1) * _pixels(input, weight, geometry) > FEW_NUMBERS:
        return None
    kept = (tuple(part) if isinstance(part, list) else part for part in geometry)
    x = input[0]
    places = x.shape, x.stride(), weight.shape, weight.stride()
    if not _same_bits(*places, tuple(kept), torch.get_num_threads()):
        return None
    return _convolved(x, weight, bias, geometry)


def _joined(parameter: Tensor, groups: int) -> Tensor:
    """Join `[B, O, ...]` of all models in one dimension, the same group of all models together."""
    if groups == 1:
        return parameter.flatten(0, 1)
    last = parameter.movedim(2, -1) if parameter.dim() > 2 else parameter
    joined = last.unflatten(1, (groups, -1)).transpose(0, 1).flatten(0, 2)
    return joined.movedim(-1, 1) if parameter.dim() > 2 else joined


def _parted(y: Tensor, B: int, groups: int) -> Tensor:
    """Undo `_joined` for the channels of a result `[N, B * O, *]`: `[B, N, O, *]`."""
    if groups == 1:
        return y.unflatten(1, (B, -1)).transpose(0, 1)
    pixels = y.movedim(1, -1).unflatten(-1, (groups, B, -1)).movedim(-2, 0)
    return pixels.flatten(-2).movedim(-1, 2)


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Any) -> Tensor:
    groups = geometry[-1]
    offsets = None if bias is None else _joined(bias, groups)
    return _parted(torch.convolution(x, _joined(weight, groups), offsets, *geometry), len(weight), groups)


def _pixels(input: Tensor, weight: Tensor, geometry: ops.ConvolutionGeometry) -> int:
    found = 1
    sizes = zip(input.shape[3:], weight.shape[3:], *geometry[:3], strict=True)
    for side in sizes:
        found *= output_side(*side)
    return found


@functools.cache
def _same_bits(*key: Any) -> bool:
    """Compare one convolution with one per model, in a thread outside of any recording or torch mode."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(_compare(*key)), name="convolution bits")
    thread.start()
    thread.join()
    return found == [True]


def _numbers(shape: torch.Size, strides: tuple[int, ...]) -> Tensor:
    """Make a tensor of numbers between -1 and 1 with these strides, without a random generator."""
    size = shape.numel()
    values = torch.arange(size, dtype=torch.float64).mul_(12.9898).sin_().mul_(43758.5453).frac_()
    return torch.empty_strided(shape, strides).copy_(values.float().view(shape))


def _compare(
    shape: torch.Size,
    strides: tuple[int, ...],
    filters: torch.Size,
    filter_strides: tuple[int, ...],
    kept: Any,
    threads: int,
) -> bool:
    torch.set_num_threads(threads)
    geometry: Any = [list(part) if isinstance(part, tuple) else part for part in kept]
    x, weight = _numbers(shape, strides), _numbers(filters, filter_strides).requires_grad_()
    bias = _numbers(filters[:2], (filters[1], 1)).requires_grad_()
    y = _convolved(x, weight, bias, geometry)
    grad = _numbers(y.shape, (y[0].numel(), *torch.convolution(x, weight[0], bias[0], *geometry).stride()))
    together = y, *torch.autograd.grad(y, (weight, bias), grad)
    for model, (w, b) in enumerate(zip(weight.detach(), bias.detach(), strict=True)):
        alone = torch.convolution(x, w, b, *geometry), *_gradients(grad[model], x, w, geometry)
        if not all(torch.equal(all_of[model], one) for all_of, one in zip(together, alone, strict=True)):
            return False
    return True


def _gradients(grad: Tensor, x: Tensor, weight: Tensor, geometry: Any) -> tuple[Tensor, Tensor]:
    found = torch.ops.aten.convolution_backward(grad, x, weight, [len(weight)], *geometry, [False, True, True])
    return found[1], found[2]
