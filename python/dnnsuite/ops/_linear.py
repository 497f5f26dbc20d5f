# SPDX-License-Identifier: MIT
"""Linear layers of B models: composed of torch's matrix products, by the number of models."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InvalidArgument

__all__ = ["linear"]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weightᵀ + bias of each model: x [B, ..., I], weight [B, O, I], bias [B, O] to [B, ..., O].

    One model is an ordinary `torch.nn.functional.linear` on views (no copy, no batched product).
    """
    models, outputs, inputs = weight.shape
    if x.dim() < 2 or x.shape[0] != models or x.shape[-1] != inputs:
        raise InvalidArgument(
            f"linear: x must be [B, ..., I] with B = {models} and I = {inputs} as in weight "
            f"{list(weight.shape)}, not {list(x.shape)}"
        )
    if bias is not None and bias.shape != (models, outputs):
        raise InvalidArgument(f"linear: bias must be {[models, outputs]}, not {list(bias.shape)}")
    shape = (*x.shape[:-1], outputs)
    if models == 1:
        row_bias = None if bias is None else bias.reshape(outputs)
        y = torch.nn.functional.linear(x.reshape(-1, inputs), weight.reshape(outputs, inputs), row_bias)
    else:
        rows = x.reshape(models, x.shape[1:-1].numel(), inputs)
        transposed = weight.transpose(1, 2)
        y = (
            torch.bmm(rows, transposed)
            if bias is None
            else torch.baddbmm(bias.unsqueeze(1), rows, transposed)
        )
    return y.view(shape)
