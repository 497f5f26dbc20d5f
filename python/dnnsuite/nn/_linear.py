# SPDX-License-Identifier: MIT
"""Linear layers of B models."""

from __future__ import annotations

import torch

from .. import ops
from ._parametric import Parametric
from .array_module import check_models


class Linear(Parametric):
    """`torch.nn.Linear` for B models: `[B, *, in_features]` to `[B, *, out_features]`.

    `weight` is `[B, out_features, in_features]`, `bias` `[B, out_features]`.

    >>> import torch
    >>> from dnnsuite import nn
    >>> layer = nn.Linear(784, 10, B=3)
    >>> layer.weight.shape, layer(torch.zeros(3, 32, 784)).shape
    (torch.Size([3, 10, 784]), torch.Size([3, 32, 10]))
    """

    arguments = ("in_features", "out_features", "bias")

    compute_dtype: torch.dtype | None = None  # of products, if not that of the parameters: `nn.compute_dtype`
    activations = frozenset({"relu", "gelu"})

    def shape_of_result(self, x: torch.Tensor) -> torch.Size:
        return torch.Size((*x.shape[:-1], self.out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activated(x)

    def activated(self, x: torch.Tensor, activation: str = "none", slope: float = 0.0) -> torch.Tensor:
        """Compute `activation(self(x))`: one kernel with ReLU; with GELU the bias and the activation are one pass."""
        check_models(x, self.B, "Linear")
        y = ops.linear(x, self.weight, self.bias, activation, self.compute_dtype)
        return y if self.compute_dtype is None else y.to(x.dtype)
