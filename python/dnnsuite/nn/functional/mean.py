# SPDX-License-Identifier: MIT
"""Means whose gradient is not written out, and the maximum over one dimension."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import ops
from .._models import computable, shifted


def mean(x: Tensor, dims: int | tuple[int, ...], keepdim: bool = False) -> Tensor:
    """Compute `x.mean(dims, keepdim)` as torch does, a sum and a division.

    torch's gradient divides after it has expanded, and writes a contiguous tensor of the size of x: adding that to a
    gradient with the channels last takes four times as long as the rest of a squeeze-and-excitation block.
    """
    if x.dtype not in (torch.float32, torch.float64):  # a sum of 16 bits would be rounded twice
        return x.mean(dims, keepdim)
    total = x.sum(dims, keepdim)
    return total / (x.numel() / (total.numel() or 1)) if x.numel() else x.mean(dims, keepdim)


def max(input: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    """`torch.max(input, dim, keepdim)` of `[B, ...]`; `dim` counts the dimensions of one model. Returns values and
    indices; of equal values, the first index. A maximum over points is fast in any memory order."""
    dim = shifted(dim, input, "max") % input.dim()
    if not input.is_floating_point():
        return torch.max(input, dim, keepdim)
    values, indices = ops.max_over(computable(input), dim)
    values = values.to(input.dtype)
    pair = (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))
    return torch.return_types.max(pair)
