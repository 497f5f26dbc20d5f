# SPDX-License-Identifier: MIT
"""ResNet-50 (He et al. 2016, stride in the 3 x 3 convolutions) for pictures of 224 and of 32 pixels."""

from __future__ import annotations

import torch
from torch import nn

from ..errors import InvalidArgument

_BLOCKS = (3, 4, 6, 3)
_EXPANSION = 4


class ResNet50(nn.Module):
    """Residual network of 16 bottleneck blocks; parameters have torchvision's names and shapes.

    Args:
        classes: number of classes of the last layer.
        width: channels of the first convolution; 64 in the paper.
        small: pictures of 32 pixels (SC20): the first convolution keeps the resolution and no pooling follows it.
            Parameters are the same, arithmetic is 16 times as much per pixel.
    """

    layer1: nn.Module
    layer2: nn.Module
    layer3: nn.Module
    layer4: nn.Module

    def __init__(self, classes: int = 1000, width: int = 64, small: bool = False) -> None:
        super().__init__()
        if classes < 1 or width < 1:
            raise InvalidArgument(f"classes={classes}, width={width}: both must be at least 1")
        self.conv1 = nn.Conv2d(3, width, 7, stride=1 if small else 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        for stage, blocks in enumerate(_BLOCKS):
            inner = width << stage
            first = _Bottleneck(channels, inner, stride=1 if stage == 0 else 2)
            channels = inner * _EXPANSION
            rest = [_Bottleneck(channels, inner) for _ in range(blocks - 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(first, *rest))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pictures `[N, 3, H, W]` → scores `[N, classes]`."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class _Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a shortcut, which has a convolution where the shape changes."""

    def __init__(self, channels: int, inner: int, stride: int = 1) -> None:
        super().__init__()
        out = inner * _EXPANSION
        self.conv1 = nn.Conv2d(channels, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        shortcut = nn.Conv2d(channels, out, 1, stride=stride, bias=False)
        changes = stride != 1 or channels != out
        self.downsample: nn.Module | None = nn.Sequential(shortcut, nn.BatchNorm2d(out)) if changes else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        shortcut: torch.Tensor = x if self.downsample is None else self.downsample(x)
        return self.relu(self.bn3(self.conv3(y)) + shortcut)
