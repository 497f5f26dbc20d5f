# SPDX-License-Identifier: MIT
"""Order of a tensor's dimensions in memory."""

from __future__ import annotations

from torch import Tensor

__all__ = ["memory_order"]


def memory_order(x: Tensor) -> list[int]:
    """List the dimensions of `x` `[B, ...]` as they lie in memory, outermost first; the model stays in front."""
    strides = x.stride()
    return [0, *sorted(range(1, x.dim()), key=lambda d: -strides[d])]
