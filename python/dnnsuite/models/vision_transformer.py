# SPDX-License-Identifier: MIT
"""A vision transformer (Dosovitskiy et al., 2021), a running average of weights, and both as student and teacher."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    """Pictures `[N, C, S, S]` → features `[N, width]`, those of the class token (Dosovitskiy et al., 2021).

    Pictures of another size than `options["size"]` have places between those of its patches.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        width, patch = options["width"], options["patch"]
        self.enter = nn.Conv2d(options["channels"], width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.side = options["size"] // patch
        self.place = nn.Parameter(torch.randn(1 + self.side**2, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, options["heads"], 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(options["layers"])
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.every(x)[:, 0])

    def every(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the class token and the patches, `[N, 1 + P, width]`."""
        patches = self.enter(x)
        place: torch.Tensor = self.place
        side = patches.shape[-1]
        if side != self.side:
            grid = place[1:].t().unflatten(1, (self.side, self.side))[None]
            between = F.interpolate(grid, size=(side, side), mode="bilinear", align_corners=False)
            place = torch.cat([place[:1], between[0].flatten(1).t()])
        h = torch.cat([self.token.expand(len(x), -1, -1), patches.flatten(2).transpose(1, 2)], 1) + place
        for layer in self.layers:
            h = layer(h)
        return h


class Averaged(nn.Module):
    """A model and the running average of its weights, which answers where the model is not being trained."""

    def __init__(self, live: nn.Module, decay: float) -> None:
        super().__init__()
        self.live, self.decay = live, decay
        self.average = copy.deepcopy(live).requires_grad_(False)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.live(*inputs) if self.training else self.average(*inputs)


class Student(nn.Module):
    """Pictures `[N, C, S, S]` → features `[N, width]`, and the similarity of each to the prototypes `[N, K]`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        width, hidden, neck = options["width"], options["hidden"], options["bottleneck"]
        self.encoder = Encoder(options)
        layers = [nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.GELU()]
        for _ in range(options["deep"]):
            layers += [nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.GELU()]
        self.head = nn.Sequential(*layers, nn.Linear(hidden, neck), nn.BatchNorm1d(neck, affine=False))
        self.prototypes = nn.Parameter(torch.randn(options["prototypes"], neck) * neck**-0.5)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder.norm(self.encoder.every(x)).mean(1)

    def similar(self, features: torch.Tensor) -> torch.Tensor:
        return F.linear(F.normalize(self.head(features), dim=-1), F.normalize(self.prototypes, dim=-1))


def spread(similar: torch.Tensor, temperature: float) -> torch.Tensor:
    """Answers `[N, K]` of which each prototype has as many: three rounds of Sinkhorn and Knopp."""
    found = ((similar - similar.max()) / temperature).exp()
    for _ in range(3):
        found = found / found.sum(0, keepdim=True)
        found = found / found.sum(1, keepdim=True)
    return found


class Dino(Averaged):
    """Crops → the student's similarities to the prototypes and the teacher's, in training; else the teacher's features
    of crops and its similarities. The teacher is the average."""

    def forward(self, large: Any, small: torch.Tensor | None = None) -> Any:  # type: ignore[override]
        student: Any = self.live
        teacher: Any = self.average
        if small is None:
            features = teacher.features(large)
            return features, teacher.similar(features)
        with torch.no_grad():
            said = teacher.similar(teacher.features(large))
        features = torch.cat([student.features(x) for x in (large, small)])
        return student.similar(features), said
