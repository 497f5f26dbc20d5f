# SPDX-License-Identifier: MIT
"""fastMRI's U-Net (Zbontar et al., 2018)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class _Two(nn.Sequential):
    """Two convolutions, each with a norm of each picture."""

    def __init__(self, before: int, width: int) -> None:
        layers: list[nn.Module] = []
        for channels in (before, width):
            layers.append(nn.Conv2d(channels, width, 3, padding=1, bias=False))
            layers += [nn.InstanceNorm2d(width), nn.LeakyReLU(0.2)]
        super().__init__(*layers)


class UNet(nn.Module):
    """Pictures `[N, 1, S, S]` → pictures; `pools` times the resolution is halved and restored."""

    def __init__(self, width: int, pools: int) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(pools + 1)]
        self.down = nn.ModuleList(_Two(i, o) for i, o in zip([1, *widths], widths, strict=False))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2, bias=False) for i, o in pairs)
        self.up = nn.ModuleList(_Two(2 * o, o) for _, o in pairs)
        self.leave = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, kept = x, []
        for place, down in enumerate(self.down):
            h = down(F.avg_pool2d(h, 2) if place else h)
            kept.append(h)
        for grow, up, beside in zip(self.grow, self.up, kept[-2::-1], strict=True):
            h = up(torch.cat([F.leaky_relu(grow(h), 0.2), beside], 1))
        return x + self.leave(h)
