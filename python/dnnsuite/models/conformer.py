# SPDX-License-Identifier: MIT
"""A Conformer (Gulati et al., 2020): attention, and convolutions in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class _Convolution(nn.Module):
    """Gated depthwise convolution in time, with a norm."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.mix = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.GroupNorm(1, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = F.glu(self.enter(x.transpose(1, 2)), 1)
        return self.leave(F.silu(self.norm(self.mix(found)))).transpose(1, 2)


class _Block(nn.Module):
    """Half-weighted feed-forward, attention, convolution, half-weighted feed-forward."""

    def __init__(self, width: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.first, self.last = (
            nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)) for _ in range(2)
        )
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.convolution = _Convolution(width, kernel)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.first(self.norms[0](x))
        h = self.norms[1](x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        x = x + self.convolution(self.norms[2](x))
        return self.norms[4](x + 0.5 * self.last(self.norms[3](x)))


class Conformer(nn.Module):
    """Map mel spectrograms `[N, T, mel]` to logits of the symbols `[N, T / 4, symbols]`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        width, mel = options["width"], options["mel"]
        self.enter = nn.Sequential(
            nn.Conv1d(mel, width, 3, 2, 1), nn.SiLU(), nn.Conv1d(width, width, 3, 2, 1), nn.SiLU()
        )
        self.place = nn.Parameter(torch.randn(options["frames"] // 4, width) * 0.02)
        self.blocks = nn.ModuleList(
            _Block(width, options["heads"], options["kernel"]) for _ in range(options["layers"])
        )
        self.leave = nn.Linear(width, options["symbols"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.enter(x.transpose(1, 2)).transpose(1, 2) + self.place
        for block in self.blocks:
            h = block(h)
        return self.leave(h)
