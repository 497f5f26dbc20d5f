# SPDX-License-Identifier: MIT
"""Bilinear forms of B models."""

from __future__ import annotations

import torch

from ... import ops
from ...errors import InvalidArgument


def bilinear(
    input1: torch.Tensor, input2: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute input1ᵀ W input2 + bias for each model: inputs `[B, *, I1]` and `[B, *, I2]`, weight `[B, O, I1, I2]`,
    result `[B, *, O]`.

    W input2 is one matrix product for all O * I1 rows, without a copy of the weights; the rest is a sum of I1 products.
    """
    shapes = (input1.shape, input2.shape)
    if weight.dim() != 4 or shapes[0][:-1] != shapes[1][:-1] or (shapes[0][-1], shapes[1][-1]) != weight.shape[2:]:
        raise InvalidArgument(
            f"bilinear takes [B, *, I1], [B, *, I2] and weight [B, O, I1, I2], got {list(input1.shape)}, "
            f"{list(input2.shape)} and {list(weight.shape)}"
        )
    rows = ops.linear(input2, weight.flatten(1, 2)).unflatten(-1, weight.shape[1:3])  # [B, *, O, I1]
    y = (rows * input1.unsqueeze(-2)).sum(-1)
    return y if bias is None else y + bias.view(len(bias), *[1] * (y.dim() - 2), -1)
