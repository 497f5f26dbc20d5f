# SPDX-License-Identifier: MIT
"""Convolutional networks: residual ones of any width (He et al., CVPR 2016), with torchvision's names and shapes of
parameters, ConvNeXt (Liu et al., 2022), fastMRI's U-Net (Zbontar et al., 2018), the policy of Atari players (Mnih et
al., Nature 2015), super-resolution (Shi et al., CVPR 2016) and DCGAN (Radford, Metz and Chintala, ICLR 2016)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..errors import InvalidArgument


class _ResNetBlock(nn.Module):
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
                made.append(_ResNetBlock(channels, *(deep if bottleneck else ((inner, 3, stride), (inner, 3, 1)))))
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


class _OverChannels(nn.LayerNorm):
    """Layer norm over the channels of `[N, C, H, W]`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _ConvNeXtBlock(nn.Module):
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
            stages += [*enter, *(_ConvNeXtBlock(width) for _ in range(depth))]
            before, step = width, 2
        self.stages, self.norm = nn.Sequential(*stages), nn.LayerNorm(before)
        self.leave = nn.Linear(before, options["classes"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leave(self.norm(self.stages(x).mean((2, 3))))


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


class NatureCNN(nn.Module):
    """Images `[N, 4, 84, 84]` of bytes to the logits of actions `[N, A]` and the values of states `[N]`.

    Three convolutions and a layer of 512, shared by both heads. The third convolution has 32 filters, not the paper's
    64. Weights are orthogonal, with gain sqrt(2), 0.01 for the policy and 1 for the value; biases are 0.
    """

    def __init__(self, actions: int, images: int = 4) -> None:
        super().__init__()
        relu = math.sqrt(2)
        self.body = nn.Sequential(
            _orthogonal(nn.Conv2d(images, 32, 8, stride=4), relu),
            nn.ReLU(),
            _orthogonal(nn.Conv2d(32, 64, 4, stride=2), relu),
            nn.ReLU(),
            _orthogonal(nn.Conv2d(64, 32, 3, stride=1), relu),
            nn.ReLU(),
            nn.Flatten(),
            _orthogonal(nn.Linear(32 * 7 * 7, 512), relu),
            nn.ReLU(),
        )
        self.value = _orthogonal(nn.Linear(512, 1), 1.0)
        self.policy = _orthogonal(nn.Linear(512, actions), 0.01)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(images.float() / 255)
        return self.policy(features), self.value(features).squeeze(1)


def _orthogonal(layer: nn.Conv2d | nn.Linear, gain: float) -> nn.Module:
    assert layer.bias is not None
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


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


class Generator(nn.Module):
    """Noise `[N, latent, 1, 1]` to images `[N, channels, 64, 64]` in [-1, 1]; `width` is the paper's 128."""

    def __init__(self, latent: int = 100, width: int = 128, channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        widths = [latent, 8 * width, 4 * width, 2 * width, width]
        for place in range(4):
            stride, padding = (1, 0) if place == 0 else (2, 1)
            layers += [
                nn.ConvTranspose2d(widths[place], widths[place + 1], 4, stride, padding, bias=False),
                nn.BatchNorm2d(widths[place + 1]),
                nn.ReLU(inplace=True),
            ]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(width, channels, 4, 2, 1, bias=False), nn.Tanh())
        self.apply(initialize)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.layers(z)


class Discriminator(nn.Module):
    """Images `[N, channels, 64, 64]` to the logit of being real, `[N]`."""

    def __init__(self, width: int = 128, channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
        for factor in (1, 2, 4):
            layers += [
                nn.Conv2d(factor * width, 2 * factor * width, 4, 2, 1, bias=False),
                nn.BatchNorm2d(2 * factor * width),
                nn.LeakyReLU(0.2, inplace=True),
            ]
        self.layers = nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, 1, 0, bias=False))
        self.apply(initialize)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).view(-1, 1).squeeze(1)


class GAN(nn.Module):
    """The two networks."""

    def __init__(self, latent: int, generator: int, discriminator: int) -> None:
        super().__init__()
        self.discriminator = Discriminator(discriminator)
        self.generator = Generator(latent, generator)


def initialize(module: nn.Module) -> None:
    """Initialise as in the paper: convolutions from a normal of deviation 0.02, weights of norms from one around 1."""
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)
