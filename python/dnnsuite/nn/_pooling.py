# SPDX-License-Identifier: MIT
"""Pooling layers: `[B, N, C, *]`, or `[B, C, *]` without a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from . import functional
from ._stateless import Stateless
from .array_module import check_models
from .model_tensor import Deferred, outside
from .waiting_relu import input_of_relu


class _MaxPool(Stateless):
    arguments: ClassVar[tuple[str, ...]] = (
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "return_indices",
        "ceil_mode",
    )
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


class MaxPool1d(_MaxPool, function="max_pool1d"): ...


class MaxPool2d(_MaxPool, function="max_pool2d"): ...


class MaxPool3d(_MaxPool, function="max_pool3d"): ...


class _AvgPool(Stateless, arguments=("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")): ...


class AvgPool1d(_AvgPool, function="avg_pool1d"): ...


class AvgPool2d(_AvgPool, function="avg_pool2d", arguments=(*_AvgPool.arguments, "divisor_override")): ...


class AvgPool3d(_AvgPool, function="avg_pool3d", arguments=(*_AvgPool.arguments, "divisor_override")): ...


class _AdaptiveAvgPool(Stateless, arguments=("output_size",)): ...


class AdaptiveAvgPool1d(_AdaptiveAvgPool, function="adaptive_avg_pool1d"): ...


class AdaptiveAvgPool2d(_AdaptiveAvgPool, function="adaptive_avg_pool2d"): ...


class AdaptiveAvgPool3d(_AdaptiveAvgPool, function="adaptive_avg_pool3d"): ...


class _AdaptiveMaxPool(Stateless, arguments=("output_size", "return_indices")): ...


class AdaptiveMaxPool1d(_AdaptiveMaxPool, function="adaptive_max_pool1d"): ...


class AdaptiveMaxPool2d(_AdaptiveMaxPool, function="adaptive_max_pool2d"): ...


class AdaptiveMaxPool3d(_AdaptiveMaxPool, function="adaptive_max_pool3d"): ...


class _LPPool(Stateless, arguments=("norm_type", "kernel_size", "stride", "ceil_mode")): ...


class LPPool1d(_LPPool, function="lp_pool1d"): ...


class LPPool2d(_LPPool, function="lp_pool2d"): ...


class LPPool3d(_LPPool, function="lp_pool3d"): ...


class _MaxUnpool(Stateless):
    arguments: ClassVar[tuple[str, ...]] = ("kernel_size", "stride", "padding")

    def forward(  # type: ignore[override]
        self, x: torch.Tensor, indices: torch.Tensor, output_size: Sequence[int] | None = None
    ) -> torch.Tensor:
        check_models(x, self.B, type(self).__name__)
        arguments = self.arguments_of(self)
        result: torch.Tensor = getattr(functional, self.function)(x, indices, **arguments, output_size=output_size)
        return result


class MaxUnpool1d(_MaxUnpool, function="max_unpool1d"):
    """`torch.nn.MaxUnpool1d` for B models: `[B, N, C, L]` or `[B, C, L]`; `output_size` is one model's."""


class MaxUnpool2d(_MaxUnpool, function="max_unpool2d"):
    """`torch.nn.MaxUnpool2d` for B models: `[B, N, C, H, W]` or `[B, C, H, W]`; `output_size` is one model's."""


class MaxUnpool3d(_MaxUnpool, function="max_unpool3d"):
    """`torch.nn.MaxUnpool3d` for B models: `[B, N, C, D, H, W]` or `[B, C, D, H, W]`; `output_size` is one model's."""
