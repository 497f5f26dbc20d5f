# SPDX-License-Identifier: MIT
"""ConvNeXt (Liu et al., 2022): depthwise convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


class _OverChannels(nn.LayerNorm):
    """Layer norm over the channels of `[N, C, H, W]`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width,), 1e-1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.scale * self.ff(self.norm(self.mix(x).permute(0, 2, 3, 1)))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Map images `[N, C, S, S]` to logits `[N, classes]`, in four stages that halve the resolution in turn."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        before, step = options["channels"], 4
        for depth, factor in zip((int(each) for each in options["depths"].split()), (1, 2, 4, 8), strict=True):
            width = factor * options["width"]
            enter: list[nn.Module] = [nn.Conv2d(before, width, step, step)]
            enter = [*enter, _OverChannels(width)] if step == 4 else [_OverChannels(before), *enter]
            stages += [*enter, *(_Block(width) for _ in range(depth))]
            before, step = width, 2
        self.stages, self.norm = nn.Sequential(*stages), nn.LayerNorm(before)
        self.leave = nn.Linear(before, options["classes"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leave(self.norm(self.stages(x).mean((2, 3))))
