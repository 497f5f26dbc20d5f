# SPDX-License-Identifier: MIT
"""Convolutions of a batch that all models share, as one with the filters of all of them.

Small ones take a half to a third of the time of B. The bits have to be those of one model alone, for no result depends
on how many models there are: whether they are is tried once for each geometry.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
from torch import Tensor

from .._torch import transforming
from ._convolve_models import Geometry

FEW_NUMBERS = 262144
"""Numbers of all models' results up to which one convolution is quicker; larger ones leave the caches
(`benchmarks/ops/grid.py`)."""


def wide_convolution(input: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor | None:
    """Convolve `[B, N, C, H, W]` with the models' filters in one call; None if that is slower, or not the same."""
    *_, transposed, _, groups = geometry
    if input.stride(0) != 0 or len(input) < 2 or transposed or groups != 1 or input.requires_grad:
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
    y = torch.convolution(x, weight.flatten(0, 1), None if bias is None else bias.flatten(), *geometry)
    return y.unflatten(1, (len(weight), -1)).transpose(0, 1)


def _pixels(input: Tensor, weight: Tensor, geometry: Geometry) -> int:
    found = 1
    sizes = zip(input.shape[3:], weight.shape[3:], *geometry[:3], strict=True)
    for n, k, stride, padding, dilation in sizes:
        found *= (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1
    return found


@functools.cache
def _same_bits(*key: Any) -> bool:
    """Compare one convolution with one for each model, in a thread that nobody records or changes the modes of."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(_compare(*key)), name="convolution bits")
    thread.start()
    thread.join()
    return found == [True]


def _numbers(shape: torch.Size, strides: tuple[int, ...]) -> Tensor:
    """Numbers between -1 and 1, drawn from no generator, in the places of a tensor without gaps."""
    size = shape.numel()
    values = torch.arange(size, dtype=torch.float64).mul_(12.9898).sin_().mul_(43758.5453).frac_()
    return torch.empty_strided(shape, strides).copy_(values.float().view(shape))


@torch.no_grad()
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
    x, weight = _numbers(shape, strides), _numbers(filters, filter_strides)
    bias = _numbers(filters[:2], (filters[1], 1))
    y = torch.convolution(x, weight.flatten(0, 1), bias.flatten(), *geometry)
    grad = _numbers(y.shape, y.stride())
    _, dweight, dbias = _gradients(grad, x, weight.flatten(0, 1), geometry)
    for model, (w, b) in enumerate(zip(weight, bias, strict=True)):
        own = slice(model * len(b), (model + 1) * len(b))
        _, dw, db = _gradients(grad[:, own], x, w, geometry)
        pairs = (y[:, own], torch.convolution(x, w, b, *geometry)), (dweight[own], dw), (dbias[own], db)
        if not all(torch.equal(a, c) for a, c in pairs):
            return False
    return True


def _gradients(grad: Tensor, x: Tensor, weight: Tensor, geometry: Any) -> tuple[Tensor, Tensor, Tensor]:
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        grad, x, weight, [len(weight)], *geometry, [False, True, True]
    )
    return found
