# SPDX-License-Identifier: MIT
"""Reductions for which there is a kernel."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ... import ops
from .._precision import computable
from ._models import shifted


class Max(NamedTuple):
    """What `max` returns, as `torch.max` does."""

    values: torch.Tensor
    indices: torch.Tensor


def max(input: torch.Tensor, dim: int, keepdim: bool = False) -> Max:
    """`torch.max(input, dim, keepdim)` of `[B, ...]`, `dim` counted without the model: values and indices, of
    equals the first. It is for the maximum over points, where the dimension may lie anywhere in memory."""
    dim = shifted(dim, input, "max") % input.dim()
    if not input.is_floating_point():
        return Max(*torch.max(input, dim, keepdim))
    values, indices = ops.max_over(computable(input), dim)
    values = values.to(input.dtype)
    return Max(values, indices) if keepdim else Max(values.squeeze(dim), indices.squeeze(dim))
