# SPDX-License-Identifier: MIT
"""Detection without anchors (FCOS; Tian et al., 2019): objectness by focal loss, classes, boxes by generalised overlap.

A scene has three things, of sizes that vary. At paper size features of ResNet-50 go through a pyramid of five levels,
each of which finds things of its own sizes; at quick size one level does. The measure is the average precision at an
overlap of one half, all classes pooled.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...data.batches import Pooled
from ...models import ResNet50
from .._job import JobConfig
from ..declared_job import declare, widened
from ..workload import Made, Metric, Preset, Rate, Values, Workload
from .vision import counted, pictures

_THINGS, _FIRST = 3, 8  # in a scene; stride of the first level
_SCENES = 48  # batches of scenes that are drawn once
_FOUND = 30  # of a scene at most


def _conv(before: int, width: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.GroupNorm(8, width), nn.SiLU())


class Detector(nn.Module):
    """Scenes `[N, C, S, S]` → objectness `[N, P]`, logits of classes `[N, P, classes]` and boxes `[N, P, 4]` in pixels.

    P are the places of all levels, the finest first, row by row.
    """

    def __init__(self, options: Values) -> None:
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
            stride = _FIRST * 2**level
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


def scenes(config: JobConfig, options: Values, train: bool = True) -> Pooled:
    """Scenes `[N, C, S, S]`; of each place whether a thing is there `[N, P]`, its class and its box `[N, P, 4]`."""
    size, levels, count = options["size"], options["levels"], config.batch_size
    own = pictures(config, {**options, "size": 32}, train)
    generator = torch.Generator().manual_seed(config.data_seed + (0 if train else 1 << 40))
    sides = [math.ceil(size / (_FIRST * 2**level)) for level in range(levels)]
    first = [sum(side * side for side in sides[:level]) for level in range(levels + 1)]
    made = []
    for batch in range(_SCENES if train else 8):
        x = 0.1 * torch.randn(count, options["channels"], size, size, generator=generator)
        there, kind = torch.zeros(count, first[-1]), torch.zeros(count, first[-1], dtype=torch.long)
        box = torch.zeros(count, first[-1], 4)
        for thing in range(_THINGS):
            images, classes = own.batch(batch * _THINGS + thing)
            across = torch.randint(size // 6, size // 3 + 1, (count,), generator=generator).tolist()
            corners = (torch.rand(count, 2, generator=generator) * (size - torch.tensor(across))[:, None]).long()
            for i, ((u, v), s) in enumerate(zip(corners.tolist(), across, strict=True)):
                level = min(levels - 1, max(0, int(math.log2(max(s, 1) / 32))))
                stride = _FIRST * 2**level
                place = first[level] + (v + s // 2) // stride * sides[level] + (u + s // 2) // stride
                if there[i, place]:
                    continue
                drawn = F.interpolate(images[i : i + 1] + 1, size=(s, s), mode="bilinear", align_corners=False)[0]
                x[i, :, v : v + s, u : u + s] += drawn
                there[i, place], kind[i, place] = 1, classes[i]
                box[i, place] = torch.tensor([u, v, u + s, v + s], dtype=torch.float32)
        made.append((x, there, kind, box))
    return Pooled(made, own.record)


def loss(model: Any, x: torch.Tensor, there: torch.Tensor, kind: torch.Tensor, box: torch.Tensor) -> torch.Tensor:
    score, classes, boxes = model(x)
    score, things = widened(score), there.sum()
    known = F.binary_cross_entropy_with_logits(score, there, reduction="none")
    focal = ((score.sigmoid() - there).abs() ** 2 * known).sum()
    of_class = F.cross_entropy(widened(classes).transpose(1, 2), kind, reduction="none")
    return (focal + (of_class * there).sum() + ((1 - overlaps(boxes, box)[1]) * there).sum()) / things


def precision(model: Any, x: torch.Tensor, there: torch.Tensor, kind: torch.Tensor, box: torch.Tensor) -> torch.Tensor:
    """Average precision: the area below precision over recall. A thing is found once, at an overlap of .5."""
    score, classes, boxes = model(x)
    chance, order = widened(score).sigmoid().topk(min(_FOUND, score.shape[1]), -1)
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


_PAPER = {"width": 256, "tower": 4, "levels": 5, "size": 800, "channels": 3, "classes": 91}
declare(
    Workload(
        name="detector",
        description="convolutions learn to find things in scenes, without anchors",
        unit="images",
        options={"width": 96, "tower": 1, "levels": 1, "size": 96, "channels": 1, "classes": 10},
        model=lambda options, hyper: Detector(options),
        data=scenes,
        loss=loss,
        held_out=lambda config, options: scenes(config, options, train=False),
        metric=Metric("AP50", precision, "more", {"quick": 0.35, "default": 0.5}, batches=8),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.05}),
        hyper={"lr": 3e-3},
        rate=Rate(warmup=0.05, constant=0.3),
        clip_norm=5.0,
        flops_per_item=lambda options: counted(Detector, options),
        presets={
            "quick": Preset(3, 45, batch_size=16, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 200, batch_size=32, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 50, batch_size=16, repeats=3, max_num_Bs=2, options=_PAPER),
        },
    )
)
