# SPDX-License-Identifier: MIT
"""PointNet on point clouds, with its transform networks (Qi et al., CVPR 2017)."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn


class SharedLayer(nn.Sequential):
    """The same linear layer for every point, with batch norm and ReLU: `[N, C, P]` to `[N, O, P]`."""

    def __init__(self, channels: int, outputs: int, relu: bool = True) -> None:
        super().__init__(nn.Conv1d(channels, outputs, 1), nn.BatchNorm1d(outputs))
        if relu:
            self.append(nn.ReLU())


class DenseLayer(nn.Sequential):
    """A linear layer with batch norm and ReLU, and dropout before the norm: `[N, F]` to `[N, O]`."""

    def __init__(self, features: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__(nn.Linear(features, outputs))
        if dropout:
            self.append(nn.Dropout(dropout))
        self.append(nn.BatchNorm1d(outputs)).append(nn.ReLU())


class TransformNet(nn.Module):
    """T-Net: reads the points `[N, k, P]` and predicts a matrix `[N, k, k]` for them, near the identity.

    The paper has k = 3 for coordinates and k = 64 for features. `width` is 1024 there; the other widths follow it.
    """

    def __init__(self, k: int, width: int = 1024) -> None:
        super().__init__()
        self.k = k
        self.points = nn.Sequential(
            SharedLayer(k, width // 16), SharedLayer(width // 16, width // 8), SharedLayer(width // 8, width)
        )
        self.dense = nn.Sequential(DenseLayer(width, width // 2), DenseLayer(width // 2, width // 4))
        self.matrix = nn.Linear(width // 4, k * k)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.points(x).max(dim=2).values
        x = self.matrix(self.dense(x)).view(-1, self.k, self.k)
        return x + torch.eye(self.k, dtype=x.dtype, device=x.device)


class PointFeatures(nn.Module):
    """Points `[N, 3, P]` to features of each point `[N, width / 16, P]`, of the cloud `[N, width]`, and the matrix of
    the feature transform `[N, width / 16, width / 16]`, or None without one."""

    def __init__(self, feature_transform: bool, width: int) -> None:
        super().__init__()
        local = width // 16
        self.input_transform = TransformNet(3, width)
        self.first = SharedLayer(3, local)
        self.feature_transform = TransformNet(local, width) if feature_transform else None
        self.second = SharedLayer(local, width // 8)
        self.third = SharedLayer(width // 8, width, relu=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        x = torch.bmm(x.transpose(2, 1), self.input_transform(x)).transpose(2, 1)
        x = self.first(x)
        matrix = None
        if self.feature_transform is not None:
            matrix = self.feature_transform(x)
            x = torch.bmm(x.transpose(2, 1), cast(torch.Tensor, matrix)).transpose(2, 1)
        return x, self.third(self.second(x)).max(dim=2).values, matrix


class PointNetClassifier(nn.Module):
    """Points `[N, 3, P]` to logits `[N, classes]`, and the feature transform `[N, k, k]` (None without it).

    `width` is the paper's 1024; the 3x3 T-Net is always there, the one on features (64x64 for width 1024) is
    `feature_transform`, which `orthogonality_loss` keeps near a rotation.
    """

    def __init__(
        self, classes: int = 16, feature_transform: bool = False, dropout: float = 0.3, width: int = 1024
    ) -> None:
        super().__init__()
        self.features = PointFeatures(feature_transform, width)
        self.head = nn.Sequential(
            DenseLayer(width, width // 2), DenseLayer(width // 2, width // 4, dropout), nn.Linear(width // 4, classes)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        _, cloud, matrix = self.features(x)
        return self.head(cloud), matrix


class PointNetSegmenter(nn.Module):
    """Points `[N, 3, P]` to logits of every point `[N, P, classes]`, and the feature transform as the classifier's."""

    def __init__(self, classes: int = 4, feature_transform: bool = False, width: int = 1024) -> None:
        super().__init__()
        self.features = PointFeatures(feature_transform, width)
        self.head = nn.Sequential(
            SharedLayer(width + width // 16, width // 2),
            SharedLayer(width // 2, width // 4),
            SharedLayer(width // 4, width // 8),
            nn.Conv1d(width // 8, classes, 1),
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        points, cloud, matrix = self.features(x)
        cloud = cloud.unsqueeze(2).expand(-1, -1, points.size(2))
        return self.head(torch.cat([points, cloud], dim=1)).transpose(2, 1), matrix


def orthogonality_loss(matrix: torch.Tensor) -> torch.Tensor:
    """Distance of the transforms `[..., N, k, k]` from rotations, `[...]`: mean over N of |A Aᵀ - I|."""
    identity = torch.eye(matrix.size(-1), dtype=matrix.dtype, device=matrix.device)
    return torch.linalg.matrix_norm(matrix @ matrix.transpose(-1, -2) - identity).mean(-1)
