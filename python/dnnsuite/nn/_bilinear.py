# SPDX-License-Identifier: MIT
"""Bilinear layers of B models."""

from __future__ import annotations

import torch

from . import functional
from ._parametric import Parametric
from .array_module import check_models


class Bilinear(Parametric):
    """`torch.nn.Bilinear` for B models: `[B, *, I1]` and `[B, *, I2]` to `[B, *, O]`; `weight` is `[B, O, I1, I2]`."""

    arguments = ("in1_features", "in2_features", "out_features", "bias")

    def forward(self, input1: torch.Tensor, input2: torch.Tensor) -> torch.Tensor:
        check_models(input1, self.B, "Bilinear")
        return functional.bilinear(input1, input2, self.weight, self.bias)
