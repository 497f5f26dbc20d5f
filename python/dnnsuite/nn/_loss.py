# SPDX-License-Identifier: MIT
"""Losses that keep the models apart: one value per model, never a mean over all of them."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidArgument
from . import functional
from ._base import ArrayModule, check_models


class CrossEntropyLoss(ArrayModule):
    """`torch.nn.CrossEntropyLoss` for B models: logits `[B, N, C]` and class indices `[B, N]` to a loss `[B]`.

    Each model's mean is over its own samples that are not `ignore_index`, so `loss.sum().backward()` gives every model
    the gradient that it would have alone. `reduction="none"` gives `[B, N]`. As in torch, more dimensions follow the
    class: `[B, N, C, d1, ...]` with targets `[B, N, d1, ...]`.
    """

    torch_class = torch.nn.CrossEntropyLoss
    shared_buffers = ("weight",)
    weight: torch.Tensor | None

    def __init__(
        self,
        weight: torch.Tensor | None = None,
        size_average: None = None,
        ignore_index: int = -100,
        reduce: None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        B: int,
    ) -> None:
        super().__init__(B)
        if size_average is not None or reduce is not None:
            raise InvalidArgument(
                "size_average and reduce are gone from torch: say reduction='mean', 'sum' or 'none'"
            )
        if reduction not in ("mean", "sum", "none"):
            raise InvalidArgument(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        if not 0.0 <= label_smoothing <= 1.0:
            raise InvalidArgument(f"label_smoothing must be between 0 and 1, got {label_smoothing!r}")
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {
            "weight": module.weight,
            "ignore_index": module.ignore_index,
            "reduction": module.reduction,
            "label_smoothing": module.label_smoothing,
        }

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        check_models(logits, self.B, "CrossEntropyLoss")
        return functional.cross_entropy(
            logits, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing
        )
