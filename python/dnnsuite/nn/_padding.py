# SPDX-License-Identifier: MIT
"""Padding layers: `[B, N, C, *]`, or `[B, C, *]` without a batch."""

from __future__ import annotations

from typing import ClassVar

import torch

from . import functional
from ._stateless import Stateless
from .array_module import check_models


class _Pad(Stateless):
    arguments: ClassVar[tuple[str, ...]] = ("padding",)
    function = "pad"
    mode: ClassVar[str]
    padding: tuple[int, ...]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, type(self).__name__)
        return functional.pad(x, self.padding, self.mode, getattr(self, "value", None))


class _ConstantPad(_Pad, arguments=("padding", "value"), mode="constant"): ...


class ConstantPad1d(_ConstantPad): ...


class ConstantPad2d(_ConstantPad): ...


class ConstantPad3d(_ConstantPad): ...


class _ZeroPad(_Pad, mode="constant", value=0.0): ...


class ZeroPad1d(_ZeroPad): ...


class ZeroPad2d(_ZeroPad): ...


class ZeroPad3d(_ZeroPad): ...


class _ReflectionPad(_Pad, mode="reflect"): ...


class ReflectionPad1d(_ReflectionPad): ...


class ReflectionPad2d(_ReflectionPad): ...


class ReflectionPad3d(_ReflectionPad): ...


class _ReplicationPad(_Pad, mode="replicate"): ...


class ReplicationPad1d(_ReplicationPad): ...


class ReplicationPad2d(_ReplicationPad): ...


class ReplicationPad3d(_ReplicationPad): ...


class _CircularPad(_Pad, mode="circular"): ...


class CircularPad1d(_CircularPad): ...


class CircularPad2d(_CircularPad): ...


class CircularPad3d(_CircularPad): ...
