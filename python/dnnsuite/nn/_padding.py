# SPDX-License-Identifier: MIT
"""Padding layers: `[B, N, C, *]`, or `[B, C, *]` without a batch."""

from __future__ import annotations

from typing import Any, ClassVar

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


class _ConstantPad(_Pad):
    arguments: ClassVar[tuple[str, ...]] = ("padding", "value")
    mode = "constant"


class ConstantPad1d(_ConstantPad):
    torch_class = torch.nn.ConstantPad1d


class ConstantPad2d(_ConstantPad):
    torch_class = torch.nn.ConstantPad2d


class ConstantPad3d(_ConstantPad):
    torch_class = torch.nn.ConstantPad3d


class _ZeroPad(_Pad):
    mode = "constant"
    value: Any = 0.0


class ZeroPad1d(_ZeroPad):
    torch_class = torch.nn.ZeroPad1d


class ZeroPad2d(_ZeroPad):
    torch_class = torch.nn.ZeroPad2d


class ZeroPad3d(_ZeroPad):
    torch_class = torch.nn.ZeroPad3d


class _ReflectionPad(_Pad):
    mode = "reflect"


class ReflectionPad1d(_ReflectionPad):
    torch_class = torch.nn.ReflectionPad1d


class ReflectionPad2d(_ReflectionPad):
    torch_class = torch.nn.ReflectionPad2d


class ReflectionPad3d(_ReflectionPad):
    torch_class = torch.nn.ReflectionPad3d


class _ReplicationPad(_Pad):
    mode = "replicate"


class ReplicationPad1d(_ReplicationPad):
    torch_class = torch.nn.ReplicationPad1d


class ReplicationPad2d(_ReplicationPad):
    torch_class = torch.nn.ReplicationPad2d


class ReplicationPad3d(_ReplicationPad):
    torch_class = torch.nn.ReplicationPad3d


class _CircularPad(_Pad):
    mode = "circular"


class CircularPad1d(_CircularPad):
    torch_class = torch.nn.CircularPad1d


class CircularPad2d(_CircularPad):
    torch_class = torch.nn.CircularPad2d


class CircularPad3d(_CircularPad):
    torch_class = torch.nn.CircularPad3d
