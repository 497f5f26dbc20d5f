# SPDX-License-Identifier: MIT
"""Pooling layers: `[B, N, C, *]`, or `[B, C, *]` without a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import functional
from ._stateless import Stateless, of_dimensions
from .array_module import check_models
from .model_tensor import Deferred, outside
from .waiting_relu import input_of_relu


class _MaxPool(Stateless):
    return_indices: bool

    def joined(self, waiting: Deferred) -> torch.Tensor | None:
        if self.return_indices or (x := input_of_relu(waiting)) is None:
            return None
        with outside():
            return self.after_relu(x)

    def after_relu(self, x: torch.Tensor) -> torch.Tensor:
        """`self(relu(x))` in one pass."""
        check_models(x, self.B, type(self).__name__)
        return functional.max_pool_of_relu(getattr(functional, self.function), x, **self.arguments_of(self))


class _MaxUnpool(Stateless):
    def forward(  # type: ignore[override]
        self, x: torch.Tensor, indices: torch.Tensor, output_size: Sequence[int] | None = None
    ) -> torch.Tensor:
        check_models(x, self.B, type(self).__name__)
        arguments = self.arguments_of(self)
        result: torch.Tensor = getattr(functional, self.function)(x, indices, **arguments, output_size=output_size)
        return result


MaxPool1d, MaxPool2d, MaxPool3d = of_dimensions(_MaxPool, "MaxPool", "max_pool")
AvgPool1d, AvgPool2d, AvgPool3d = of_dimensions(Stateless, "AvgPool", "avg_pool")
AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = of_dimensions(
    Stateless, "AdaptiveAvgPool", "adaptive_avg_pool"
)
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = of_dimensions(
    Stateless, "AdaptiveMaxPool", "adaptive_max_pool"
)
LPPool1d, LPPool2d, LPPool3d = of_dimensions(Stateless, "LPPool", "lp_pool")
MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = of_dimensions(_MaxUnpool, "MaxUnpool", "max_unpool")
