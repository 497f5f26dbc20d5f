# SPDX-License-Identifier: MIT
"""Distances between the rows of two inputs, for B models."""

from __future__ import annotations

from typing import Any

import torch

from . import functional
from ._stateless import Stateless
from .array_module import ArrayModule, check_models


class CosineSimilarity(Stateless, function="cosine_similarity"):
    """`torch.nn.CosineSimilarity` for B models; `dim` counts the dimensions of one model: dim=1 is D of `[B, N, D]`."""


class PairwiseDistance(ArrayModule):
    """`torch.nn.PairwiseDistance` for B models: two inputs `[B, N, D]` to distances `[B, N]`."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False, *, B: int) -> None:
        super().__init__(B)
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {"p": module.norm, "eps": module.eps, "keepdim": module.keepdim}

    def forward(self, x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
        check_models(x1, self.B, "PairwiseDistance")
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
