# SPDX-License-Identifier: MIT
"""Plain torch models that neither dnnsuite nor torchvision has: those of tutorials and of tables, small."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class ConvNet(nn.Module):
    """Convolutions, then a head on what they leave, flat."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))


def tutorial_cnn() -> ConvNet:
    """Two convolutions with ReLU and max-pool, dropout, a linear layer: images `[N, 1, 28, 28]` to `[N, 10]`."""
    features = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
    return ConvNet(features, nn.Sequential(nn.Dropout(0.25), nn.Linear(32 * 7 * 7, 10)))


def vgg() -> ConvNet:
    """VGG-11 of half its widths, without its last stage and its wide head: images `[N, 3, 32, 32]` to `[N, 10]`."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, repeats in ((32, 1), (64, 1), (128, 2), (256, 2)):
        for _ in range(repeats):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    head = nn.Sequential(nn.Linear(256 * 2 * 2, 128), nn.ReLU(), nn.Linear(128, 10))
    return ConvNet(nn.Sequential(*layers), head)


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Ronneberger's U of three levels: images `[N, 3, H, W]` to a class of each pixel, `[N, classes, H, W]`."""

    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.outer, self.middle, self.inner = (
            _double(3, width),
            _double(width, 2 * width),
            _double(2 * width, 4 * width),
        )
        self.pool = nn.MaxPool2d(2)
        self.up_middle = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.back_middle = _double(4 * width, 2 * width)
        self.up_outer = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.back_outer = _double(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outer = self.outer(x)
        middle = self.middle(self.pool(outer))
        x = self.up_middle(self.inner(self.pool(middle)))
        x = self.up_outer(self.back_middle(torch.cat([middle, x], 1)))
        return self.head(self.back_outer(torch.cat([outer, x], 1)))


class GRUClassifier(nn.Module):
    """Two GRU layers over `[N, L, width]`, a class from the last state `[N, classes]`."""

    def __init__(self, width: int = 32, hidden: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.gru = nn.GRU(width, hidden, 2, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.gru(x)
        return self.head(y[:, -1])


class _Residual(nn.Module):
    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.first, self.second = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.second(self.dropout(F.relu(self.first(self.norm(x))))))


class TabularResNet(nn.Module):
    """Residual blocks for rows of a table (Gorishniy et al., 2021): `[N, features]` to `[N, classes]`."""

    def __init__(self, features: int = 32, width: int = 128, blocks: int = 3, dropout: float = 0.1) -> None:
        super().__init__()
        self.first = nn.Linear(features, width)
        self.blocks = nn.Sequential(*(_Residual(width, 2 * width, dropout) for _ in range(blocks)))
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.norm(self.blocks(self.first(x)))))


class DEQ(nn.Module):
    """A layer iterated to its fixed point (Bai et al., 2019), whose gradient is that of the last iteration.

    How often depends on the data of one model, so that models cannot be fused: `[N, features]` to `[N, classes]`.
    """

    def __init__(self, features: int = 64, width: int = 128, tolerance: float = 1e-3) -> None:
        super().__init__()
        self.inject, self.mix = nn.Linear(features, width), nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.mix.weight, 0.7)  # a contraction: there is a fixed point
        self.head = nn.Linear(width, 10)
        self.tolerance = tolerance

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        injected = self.inject(x)
        with torch.no_grad():
            z = torch.zeros_like(injected)
            for _ in range(50):
                before, z = z, torch.tanh(self.mix(z) + injected)
                if (z - before).abs().max().item() < self.tolerance:
                    break
        return self.head(torch.tanh(self.mix(z) + injected))
