# SPDX-License-Identifier: MIT
"""Undo pools by the places of their maxima. The samples of all models are one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ._samples import each_sample


def _unpool(plain: Any, name: str, dims: int, input: Tensor, indices: Tensor, *args: Any) -> Tensor:
    """Undo a pool of samples; images with the channels last stay so."""

    def samples(x: Tensor, i: Tensor) -> Tensor:
        last = dims == 2 and all(t.is_contiguous(memory_format=torch.channels_last) for t in (x, i))
        result: Tensor = plain(*(t if last else t.contiguous() for t in (x, i)), *args)
        return result

    result: Tensor = each_sample(samples, name, dims, input, indices)
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
