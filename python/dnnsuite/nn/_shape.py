# SPDX-License-Identifier: MIT
"""Layers that rearrange or resample: flatten, pixel shuffle, upsample, fold."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from . import functional
from ._models import shifted
from ._stateless import Stateless
from .array_module import check_models


class Flatten(Stateless):
    """`torch.nn.Flatten` for B models; `start_dim` and `end_dim` do not count the dimension of the models."""

    start_dim: int
    end_dim: int

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        check_models(x, self.B, "Flatten")
        start, end = (shifted(dim, x, "Flatten") for dim in (self.start_dim, self.end_dim))
        return x.flatten(start, end)


class Unflatten(Stateless):
    """`torch.nn.Unflatten` for B models; `dim` does not count the dimension of the models."""

    dim: int
    unflattened_size: tuple[int, ...]

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        check_models(x, self.B, "Unflatten")
        return x.unflatten(shifted(self.dim, x, "Unflatten"), self.unflattened_size)


class PixelShuffle(Stateless, function="pixel_shuffle"):
    """`torch.nn.PixelShuffle` for B models: `[B, *, C * r², H, W]` to `[B, *, C, H * r, W * r]`."""


class PixelUnshuffle(Stateless, function="pixel_unshuffle"):
    """`torch.nn.PixelUnshuffle` for B models: `[B, *, C, H * r, W * r]` to `[B, *, C * r², H, W]`."""


class ChannelShuffle(Stateless, function="channel_shuffle"):
    """`torch.nn.ChannelShuffle` for B models: `[B, N, C, *]`."""


class Fold(Stateless, function="fold"):
    """`torch.nn.Fold` for B models: `[B, N, C * k, L]` or `[B, C * k, L]`."""


class Unfold(Stateless, function="unfold"):
    """`torch.nn.Unfold` for B models: `[B, N, C, H, W]` or `[B, C, H, W]`."""


class Upsample(Stateless, function="interpolate"):
    """`torch.nn.Upsample` for B models: `[B, N, C, *]`."""


class _Upsampling2d(Stateless):
    function = "interpolate"
    keywords: ClassVar[dict[str, Any]]

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        check_models(x, self.B, type(self).__name__)
        return functional.interpolate(x, **self.arguments_of(self), **self.keywords)


class UpsamplingNearest2d(_Upsampling2d):
    """`torch.nn.UpsamplingNearest2d` for B models: `[B, N, C, H, W]`."""

    keywords: ClassVar[dict[str, Any]] = {"mode": "nearest"}


class UpsamplingBilinear2d(_Upsampling2d):
    """`torch.nn.UpsamplingBilinear2d` for B models: `[B, N, C, H, W]`."""

    keywords: ClassVar[dict[str, Any]] = {"mode": "bilinear", "align_corners": True}
