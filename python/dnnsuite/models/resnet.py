# SPDX-License-Identifier: MIT
"""Residual networks of any width (He et al., CVPR 2016), with torchvision's names and shapes of parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ..errors import InvalidArgument


class _Block(nn.Module):
    """Convolutions with batch norms beside a shortcut, which has a convolution where the shape changes.

    Args:
        convolutions: (outputs, side, stride) of each.
    """

    def __init__(self, channels: int, *convolutions: tuple[int, int, int]) -> None:
        super().__init__()
        first = channels
        for place, (outputs, side, stride) in enumerate(convolutions, 1):
            own = nn.Conv2d(channels, outputs, side, stride, padding=side // 2, bias=False)
            self.add_module(f"conv{place}", own)
            self.add_module(f"bn{place}", nn.BatchNorm2d(outputs))
            channels = outputs
        self.relu, self._last = nn.ReLU(inplace=True), len(convolutions)
        stride = max(stride for _, _, stride in convolutions)
        self.downsample: nn.Module | None = None
        if stride != 1 or first != channels:
            shortcut = nn.Conv2d(first, channels, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for place in range(1, self._last + 1):
            y = self.get_submodule(f"bn{place}")(self.get_submodule(f"conv{place}")(y))
            y = self.relu(y) if place < self._last else y
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Images `[N, 3, H, W]` → logits `[N, classes]`.

    Args:
        blocks: number of blocks in each of the four stages.
        bottleneck: True for blocks of 1 x 1, 3 x 3 (with the stride) and 1 x 1 convolutions with four times the
            channels; False for two of 3 x 3.
        classes: number of classes.
        width: channels of the first convolution; 64 in the paper.
        small: True for images of 32 pixels (SC20): the first convolution keeps the resolution and no pooling follows
            it. Parameters are the same, arithmetic is 16 times as much per pixel.
    """

    layer1: nn.Module
    layer2: nn.Module
    layer3: nn.Module
    layer4: nn.Module

    def __init__(self, blocks: Sequence[int], bottleneck: bool, classes: int, width: int, small: bool = False) -> None:
        super().__init__()
        if classes < 1 or width < 1:
            raise InvalidArgument(f"classes={classes}, width={width}: both must be at least 1")
        self.conv1 = nn.Conv2d(3, width, 7, stride=1 if small else 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        for stage, count in enumerate(blocks):
            inner, stride, made = width << stage, 1 if stage == 0 else 2, nn.Sequential()
            for _ in range(count):
                deep = ((inner, 1, 1), (inner, 3, stride), (4 * inner, 1, 1))
                made.append(_Block(channels, *(deep if bottleneck else ((inner, 3, stride), (inner, 3, 1)))))
                channels, stride = inner * (4 if bottleneck else 1), 1
            self.add_module(f"layer{stage + 1}", made)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def ResNet18(classes: int = 10, width: int = 64) -> ResNet:
    """ResNet-18 of `classes` and `width`.

    Of images of 32 x 32 one position is left before the classifier, as in HFTA's network.
    """
    return ResNet((2, 2, 2, 2), False, classes, width)


def ResNet50(classes: int = 1000, width: int = 64, small: bool = False) -> ResNet:
    """ResNet-50, with the stride in the 3 x 3 convolutions; `classes`, `width` and `small` are those of `ResNet`."""
    return ResNet((3, 4, 6, 3), True, classes, width, small)
