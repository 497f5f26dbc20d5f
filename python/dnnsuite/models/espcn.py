# SPDX-License-Identifier: MIT
"""Super-resolution by sub-pixel convolution (Shi et al., CVPR 2016), as in PyTorch's super_resolution example."""

from __future__ import annotations

import torch
from torch import nn


class ESPCN(nn.Module):
    """Map luminance `[N, 1, H, W]` to `[N, 1, rH, rW]`, where r is `upscale_factor`."""

    def __init__(self, upscale_factor: int = 2) -> None:
        super().__init__()
        sizes = [(1, 64, 5), (64, 64, 3), (64, 32, 3), (32, upscale_factor**2, 3)]
        convolutions = [nn.Conv2d(channels, filters, side, padding=side // 2) for channels, filters, side in sizes]
        for convolution in convolutions[:-1]:
            nn.init.orthogonal_(convolution.weight, nn.init.calculate_gain("relu"))
        nn.init.orthogonal_(convolutions[-1].weight)
        self.convolutions = nn.ModuleList(convolutions)
        self.shuffle = nn.PixelShuffle(upscale_factor)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for convolution in self.convolutions[:-1]:
            x = convolution(x).relu()
        return self.shuffle(self.convolutions[-1](x))
