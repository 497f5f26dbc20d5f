# SPDX-License-Identifier: MIT
"""ResNet-18 (He et al., CVPR 2016) of any width, with torchvision's names of parameters."""

from __future__ import annotations

import torch
from torch import nn


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with batch norm and a shortcut: `[N, C, H, W]` to `[N, O, H / stride, W / stride]`."""

    def __init__(self, channels: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + shortcut)


class ResNet18(nn.Module):
    """Images `[N, 3, H, W]` to logits `[N, classes]`; `width` is the paper's 64.

    Of images of 32 x 32 one position is left before the classifier, so HFTA's network, which has no average pool, is
    this one.
    """

    def __init__(self, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        for place in range(1, 5):
            first = BasicBlock(widths[place - 1], widths[place], 1 if place == 1 else 2)
            self.add_module(f"layer{place}", nn.Sequential(first, BasicBlock(widths[place], widths[place], 1)))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for place in range(1, 5):
            x = self.get_submodule(f"layer{place}")(x)
        return self.fc(self.avgpool(x).flatten(1))
