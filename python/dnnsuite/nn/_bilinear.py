# SPDX-License-Identifier: MIT
"""Bilinear layers of B models."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidArgument
from . import functional
from .array_module import ArrayModule, check_models


class Bilinear(ArrayModule):
    """`torch.nn.Bilinear` for B models: `[B, *, I1]` and `[B, *, I2]` to `[B, *, O]`; `weight` is `[B, O, I1, I2]`."""

    arguments = ("in1_features", "in2_features", "out_features", "bias")

    bias: torch.Tensor | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        B: int,
    ) -> None:
        super().__init__(B)
        if in1_features <= 0:
            raise InvalidArgument(f"in1_features must be greater than zero, got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        where = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(B, out_features, in1_features, in2_features, **where))
        self.register_parameter("bias", torch.nn.Parameter(torch.empty(B, out_features, **where)) if bias else None)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw uniformly from ±1/√in1_features, model by model, as torch does."""
        bound = self.in1_features**-0.5
        for index in range(self.B):
            for parameter in self.parameters():
                torch.nn.init.uniform_(parameter[index], -bound, bound)

    def forward(self, input1: torch.Tensor, input2: torch.Tensor) -> torch.Tensor:
        check_models(input1, self.B, "Bilinear")
        return functional.bilinear(input1, input2, self.weight, self.bias)
