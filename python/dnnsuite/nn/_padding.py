# SPDX-License-Identifier: MIT
"""Padding layers: `[B, N, C, *]`, or `[B, C, *]` without a batch."""

from __future__ import annotations

from typing import ClassVar

import torch

from . import functional
from ._stateless import Stateless, of_dimensions
from .array_module import check_models


class _Pad(Stateless):
    function = "pad"
    mode: ClassVar[str]
    padding: tuple[int, ...]

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        check_models(x, self.B, type(self).__name__)
        return functional.pad(x, self.padding, self.mode, getattr(self, "value", None))


ConstantPad1d, ConstantPad2d, ConstantPad3d = of_dimensions(_Pad, "ConstantPad", mode="constant")
ZeroPad1d, ZeroPad2d, ZeroPad3d = of_dimensions(_Pad, "ZeroPad", mode="constant", value=0.0)
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = of_dimensions(_Pad, "ReflectionPad", mode="reflect")
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = of_dimensions(_Pad, "ReplicationPad", mode="replicate")
CircularPad1d, CircularPad2d, CircularPad3d = of_dimensions(_Pad, "CircularPad", mode="circular")
