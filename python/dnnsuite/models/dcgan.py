# SPDX-License-Identifier: MIT
"""DCGAN's generator and discriminator for images of 64 x 64 (Radford, Metz and Chintala, ICLR 2016)."""

from __future__ import annotations

import torch
from torch import nn


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
