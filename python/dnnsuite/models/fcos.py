# SPDX-License-Identifier: MIT
"""Detection without anchors (FCOS; Tian et al., 2019), and how boxes overlap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .convolutional import ResNet50
from .perceptrons import widened

FIRST = 8  # stride of the first level


def _conv(before: int, width: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.GroupNorm(8, width), nn.SiLU())


class Detector(nn.Module):
    """Map scenes `[N, C, S, S]` to objectness `[N, P]`, class logits `[N, P, classes]` and boxes `[N, P, 4]` in pixels.

    P counts the places of all levels, the finest first, row by row.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        width, self.levels, self.size = options["width"], options["levels"], options["size"]
        self.deep = self.levels > 1
        if self.deep:
            body = ResNet50()
            self.stem = nn.Sequential(body.conv1, body.bn1, body.relu, body.maxpool, body.layer1)
            self.stages = nn.ModuleList([body.layer2, body.layer3, body.layer4])
            self.across = nn.ModuleList(nn.Conv2d(c, width, 1) for c in (512, 1024, 2048))
            self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in range(3))
            self.coarse = nn.ModuleList(nn.Conv2d(width, width, 3, 2, 1) for _ in range(self.levels - 3))
        else:
            small, c = width // 4, options["channels"]
            self.stem = nn.Sequential(
                _conv(c, small, 2),
                _conv(small, width // 2, 2),
                _conv(width // 2, width // 2),
                _conv(width // 2, width, 2),
            )
        self.what, self.where = (
            nn.Sequential(*(_conv(width, width) for _ in range(options["tower"]))) for _ in range(2)
        )
        self.classes = nn.Conv2d(width, 1 + options["classes"], 3, 1, 1)
        self.box = nn.Conv2d(width, 4, 3, 1, 1)
        nn.init.constant_(self.classes.bias[:1], -4.0)  # type: ignore[index]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        kinds, boxes = [], []
        for level, features in enumerate(self._pyramid(x)):
            kinds.append(self.classes(self.what(features)).flatten(2).transpose(1, 2))
            reach = F.softplus(widened(self.box(self.where(features))).flatten(2).transpose(1, 2) + 2)
            stride = FIRST * 2**level
            middle = _middles(features.shape[-1], stride, x.device, reach.dtype)
            reach = reach * stride / 2
            boxes.append(torch.cat([middle - reach[..., :2], middle + reach[..., 2:]], -1))
        found = torch.cat(kinds, 1)
        return found[..., 0], found[..., 1:], torch.cat(boxes, 1)

    def _pyramid(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = self.stem(x)
        if not self.deep:
            return [x]
        found = []
        for stage, across in zip(self.stages, self.across, strict=True):
            x = stage(x)
            found.append(across(x))
        for i in (1, 0):
            found[i] = found[i] + F.interpolate(found[i + 1], size=found[i].shape[-2:], mode="nearest")
        found = [smooth(each) for smooth, each in zip(self.smooth, found, strict=True)]
        for coarse in self.coarse:
            found.append(coarse(found[-1]))
        return found


def _middles(side: int, stride: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Middles (x, y) of the places of a level, `[side * side, 2]`."""
    at = (torch.arange(side, device=device, dtype=dtype) + 0.5) * stride
    y, x = torch.meshgrid(at, at, indexing="ij")
    return torch.stack([x, y], -1).flatten(0, 1)


def overlaps(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Intersection over union of boxes `[..., 4]`, and the generalised one (Rezatofighi et al., 2019)."""

    def area(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        # The backward pass of `prod` chooses its formula by whether there are zeros, and a recording does not.
        across, down = (high - low).clamp(min=0).unbind(-1)
        return across * down

    (a0, a1), (b0, b1) = a.split(2, -1), b.split(2, -1)
    both = area(torch.maximum(a0, b0), torch.minimum(a1, b1))
    either = area(a0, a1) + area(b0, b1) - both + 1e-6
    hull = area(torch.minimum(a0, b0), torch.maximum(a1, b1)) + 1e-6
    return both / either, both / either - (hull - either) / hull


def average_precision(
    score: torch.Tensor, classes: torch.Tensor, boxes: torch.Tensor, there: torch.Tensor, kind: torch.Tensor,
    box: torch.Tensor, most: int,
) -> torch.Tensor:  # fmt: skip
    """Compute the area under precision over recall, for all classes. An object counts once, at an overlap of 0.5.

    Args:
        score, classes, boxes: answers of a detector for scenes.
        there, kind, box: targets of each place: 1 where a thing is, else 0 `[N, P]`, its class and its box.
        most: number of boxes in a scene that count.
    """
    chance, order = widened(score).sigmoid().topk(min(most, score.shape[1]), -1)
    guess = classes.argmax(-1).gather(1, order)
    found = boxes.gather(1, order[..., None].expand(-1, -1, 4))
    # Of boxes of one class that overlap the first alone counts, as non-maximum suppression has it.
    alike = (overlaps(found[:, :, None], found[:, None])[0] > 0.5) & (guess[:, :, None] == guess[:, None])
    kept = torch.ones_like(chance)
    for i in range(1, chance.shape[1]):
        kept[:, i] = 1 - (alike[:, i, :i] * kept[:, :i]).amax(1)
    fits = (
        (overlaps(found[:, :, None], box[:, None])[0] >= 0.5)
        & (guess[:, :, None] == kind[:, None])
        & there[:, None].bool()
    )
    hit = (fits.any(-1) & (kept > 0)).flatten()
    rank = torch.where(kept > 0, chance, -1.0).flatten().argsort(descending=True)
    rank = rank[: int((kept > 0).sum())]
    hits = hit[rank].double().cumsum(0)
    exact = hits / torch.arange(1, len(hits) + 1, device=hits.device)
    exact = exact.flip(0).cummax(0).values.flip(0)
    return (exact * hits.diff(prepend=hits.new_zeros(1))).sum() / there.sum()
