# SPDX-License-Identifier: MIT
"""A diffusion transformer (Peebles and Xie, 2023): its norms are scaled, shifted and gated by time and class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

_FREQUENCIES = 32


class _Conditioned(nn.Module):
    """Attention and a feed-forward whose norms are scaled, shifted and gated by the condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        scale, shift, gate, ff_scale, ff_shift, ff_gate = self.modulation(condition).chunk(6, -1)
        h = self.norm(x) * (1 + scale) + shift
        x = x + gate * self.attention(h, h, h, need_weights=False)[0]
        return x + ff_gate * self.ff(self.norm(x) * (1 + ff_scale) + ff_shift)


class DiffusionTransformer(nn.Module):
    """Map noisy images `[N, C, S, S]`, times `[N]` and classes `[N]` to velocities `[N, C, S, S]`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        width, patch, channels = options["width"], options["patch"], options["channels"]
        self.patch, self.size = patch, options["size"]
        self.enter = nn.Conv2d(channels, width, patch, patch)
        self.place = nn.Parameter(torch.randn((self.size // patch) ** 2, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(2 * _FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))
        self.kind = nn.Embedding(options["classes"], width)
        self.layers = nn.ModuleList(_Conditioned(width, options["heads"]) for _ in range(options["layers"]))
        self.norm, self.last = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, 2 * width)
        self.leave = nn.Linear(width, patch * patch * channels)
        for layer in (self.last, self.leave):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        rates = torch.exp(-math.log(1e4) * torch.arange(_FREQUENCIES) / _FREQUENCIES)
        self.rates: torch.Tensor
        self.register_buffer("rates", 1000 * rates)

    def forward(self, x: torch.Tensor, t: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        angles = t[:, None] * self.rates
        condition = F.silu(self.time(torch.cat([angles.cos(), angles.sin()], -1)) + self.kind(kind))[:, None]
        h = self.enter(x).flatten(2).transpose(1, 2) + self.place
        for layer in self.layers:
            h = layer(h, condition)
        scale, shift = self.last(condition).chunk(2, -1)
        patches = self.leave(self.norm(h) * (1 + scale) + shift).transpose(1, 2)
        return F.fold(patches, self.size, self.patch, stride=self.patch)
