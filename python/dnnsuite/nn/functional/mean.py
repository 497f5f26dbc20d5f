# SPDX-License-Identifier: MIT
"""Means whose gradient is not written out."""

from __future__ import annotations

import torch
from torch import Tensor


def mean(x: Tensor, dims: int | tuple[int, ...], keepdim: bool = False) -> Tensor:
    """Compute `x.mean(dims, keepdim)` as torch does, a sum and a division.

    torch's gradient divides after it has expanded, and writes a contiguous tensor of the size of x: adding that to a
    gradient with the channels last takes four times as long as the rest of a squeeze-and-excitation block.
    """
    if x.dtype not in (torch.float32, torch.float64):  # a sum of 16 bits would be rounded twice
        return x.mean(dims, keepdim)
    total = x.sum(dims, keepdim)
    return total / (x.numel() / max(total.numel(), 1)) if x.numel() else x.mean(dims, keepdim)
