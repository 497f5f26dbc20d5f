# SPDX-License-Identifier: MIT
"""The maximum over one dimension."""

from __future__ import annotations

from typing import Any

import torch

from ... import ops
from .._models import shifted
from .._precision import computable


def max(input: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    """`torch.max(input, dim, keepdim)` of `[B, ...]`; `dim` counts the dimensions of one model. Returns values and
    indices; of equal values, the first index. A maximum over points is fast in any memory order.
    """
    dim = shifted(dim, input, "max") % input.dim()
    if not input.is_floating_point():
        return torch.max(input, dim, keepdim)
    values, indices = ops.max_over(computable(input), dim)
    values = values.to(input.dtype)
    pair = (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))
    return torch.return_types.max(pair)
