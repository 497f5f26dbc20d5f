# SPDX-License-Identifier: MIT
"""Linear layers of B models."""

from __future__ import annotations

from typing import Any

import torch

from .. import ops
from .array_module import ArrayModule, check_models


class Linear(ArrayModule):
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

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None, *, B: int
    ) -> None:
        super().__init__(B)
        self.in_features, self.out_features = in_features, out_features
        where = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(B, out_features, in_features, **where))
        if bias:
            self.bias = torch.nn.Parameter(torch.empty(B, out_features, **where))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise one model after the other as torch does, so that B layers made one by one from the same seed are
        equal.
        """
        for index in range(self.B):
            torch.nn.init.kaiming_uniform_(self.weight[index], a=5**0.5)
            if self.bias is not None:
                bound = self.in_features**-0.5 if self.in_features else 0.0
                torch.nn.init.uniform_(self.bias[index], -bound, bound)

    def shape_of_result(self, x: torch.Tensor) -> torch.Size:
        return torch.Size((*x.shape[:-1], self.out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activated(x)

    def activated(self, x: torch.Tensor, activation: str = "none", slope: float = 0.0) -> torch.Tensor:
        """Compute `activation(self(x))`: one kernel with ReLU; with GELU the bias and the activation are one pass."""
        check_models(x, self.B, "Linear")
        y = ops.linear(x, self.weight, self.bias, activation, self.compute_dtype)
        return y if self.compute_dtype is None else y.to(x.dtype)
