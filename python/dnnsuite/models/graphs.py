# SPDX-License-Identifier: MIT
"""Networks of graphs: messages along edges (Xu et al., 2019), attention over neighbours (Busbridge et al., 2019); and
PointNet on point clouds, with its transform networks (Qi et al., CVPR 2017).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Step(nn.Module):
    """Add up the messages of the neighbours, then update each atom (Xu et al., 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Linear(width, width)
        self.change = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, source: Tensor, target: Tensor, there: Tensor) -> Tensor:
        sent = torch.relu(self.message(x))[source] * there[:, None]
        found = torch.zeros_like(x).index_add(0, target, sent.to(x.dtype))
        return self.norm(x + self.change(torch.cat([x, found], -1)))


class GraphNetwork(nn.Module):
    """Map kinds and marks of atoms `[N, atoms]`, and edges `[N, edges]` with weights, to logits `[N, classes]`."""

    def __init__(self, width: int, steps: int, kinds: int, marks: int, classes: int) -> None:
        super().__init__()
        self.kind, self.mark = nn.Embedding(kinds, width), nn.Embedding(marks, width)
        self.steps = nn.ModuleList(_Step(width) for _ in range(steps))
        self.leave = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, kinds: Tensor, marks: Tensor, source: Tensor, target: Tensor, there: Tensor) -> Tensor:
        graphs, atoms = kinds.shape
        x = (self.kind(kinds) + self.mark(marks)).flatten(0, 1)
        first = (torch.arange(graphs, device=kinds.device) * atoms)[:, None]
        edges = ((source + first).flatten(), (target + first).flatten(), there.flatten())
        for step in self.steps:
            x = step(x, *edges)
        x = x.view(graphs, atoms, -1)
        return self.leave(torch.cat([x.mean(1), x.amax(1)], -1))


class _Relations(nn.Module):
    """Nodes with features `[V, width]` hear their neighbours of each kind; softmax over all that a node hears."""

    def __init__(self, before: int, width: int, heads: int, kinds: int) -> None:
        super().__init__()
        self.heads = heads
        self.values = nn.ModuleList(nn.Linear(before, width, bias=False) for _ in range(kinds))
        self.scores = nn.ModuleList(nn.Linear(width, 2 * heads, bias=False) for _ in range(kinds))
        self.own = nn.Linear(before, width)

    def forward(self, x: Tensor, source: Tensor, target: Tensor, count: int) -> Tensor:
        """Return features of the first `count` nodes.

        Args:
            source, target: nodes at the ends of the edges of each kind, `[kinds, E]`.
        """
        values, scores = [], []
        for kind, (linear, scored) in enumerate(zip(self.values, self.scores, strict=True)):
            own = linear(x)
            sent, heard = scored(own).chunk(2, -1)
            values.append(own[source[kind]])
            scores.append(F.leaky_relu(sent[source[kind]] + heard[target[kind]], 0.2))
        at, score = target.flatten(), torch.cat(scores)
        most = score.new_full((count, self.heads), -1e9).scatter_reduce(0, at[:, None].expand_as(score), score, "amax")
        weight = (score - most[at]).exp()
        weight = weight / weight.new_zeros(count, self.heads).index_add(0, at, weight)[at]
        mixed = (torch.cat(values).view(len(at), self.heads, -1) * weight[..., None]).flatten(1)
        own = self.own(x[:count])
        return F.elu(own + own.new_zeros(own.shape).index_add(0, at, mixed.to(own.dtype)))


class GraphAttention(nn.Module):
    """Map features `[V, F]` of seeds, their neighbours of each kind, and so on, to logits of the seeds `[N, classes]`.

    Args:
        widths: numbers of features, F first.
        fan: number of sampled neighbours of each kind, of the seeds first.
    """

    def __init__(self, widths: Sequence[int], heads: int, kinds: int, fan: Sequence[int], classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Relations(i, o, heads, kinds) for i, o in itertools.pairwise(widths))
        self.fan, self.kinds, self.leave = list(fan), kinds, nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor, seeds: Tensor) -> Tensor:
        counts = [len(seeds)]
        for fan in self.fan:
            counts.append(counts[-1] * (1 + self.kinds * fan))
        for layer, fan, count in zip(self.layers, self.fan[::-1], counts[-2::-1], strict=True):
            x = layer(x[: count * (1 + self.kinds * fan)], *_edges(count, self.kinds, fan, x.device), count)
        return self.leave(x)


def _edges(count: int, kinds: int, fan: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return both ends of the edges of each kind: neighbours follow the nodes, those of one kind and node together."""
    source = count + torch.arange(count * kinds * fan, device=device).view(count, kinds, fan)
    target = torch.arange(count, device=device)[:, None, None].expand_as(source)
    return tuple(ends.transpose(0, 1).flatten(1) for ends in (source, target))  # type: ignore[return-value]


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
