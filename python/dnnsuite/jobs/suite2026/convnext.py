# SPDX-License-Identifier: MIT
"""Image classification by ConvNeXt (Liu et al., 2022): depthwise convolutions, and an average of the weights."""

from __future__ import annotations

import torch
from torch import nn

from ..declared_job import accuracy, declare
from ..workload import Made, Metric, Preset, Rate, Values, Workload
from .vision import Averaged, follow, held_out_pictures, pictures, smoothed_loss


class _OverChannels(nn.LayerNorm):
    """Layer norm over the channels of `[N, C, H, W]`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width,), 1e-1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.scale * self.ff(self.norm(self.mix(x).permute(0, 2, 3, 1)))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Pictures `[N, C, S, S]` → logits `[N, classes]`: four stages, each at half the resolution of the one before."""

    def __init__(self, options: Values) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        before, step = options["channels"], 4
        for depth, factor in zip((int(each) for each in options["depths"].split()), (1, 2, 4, 8), strict=True):
            width = factor * options["width"]
            enter: list[nn.Module] = [nn.Conv2d(before, width, step, step)]
            enter = [*enter, _OverChannels(width)] if step == 4 else [_OverChannels(before), *enter]
            stages += [*enter, *(_Block(width) for _ in range(depth))]
            before, step = width, 2
        self.stages, self.norm = nn.Sequential(*stages), nn.LayerNorm(before)
        self.leave = nn.Linear(before, options["classes"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leave(self.norm(self.stages(x).mean((2, 3))))


def flops(options: Values) -> float:
    found, before, places = 0.0, 4 * options["channels"], (options["size"] // 4) ** 2
    for stage, depth in enumerate(options["depths"].split()):
        width = options["width"] * 2**stage
        found += 6.0 * places * width * (int(depth) * (8 * width + 49) + 4 * before)
        before, places = width, places // 4
    return found


_PAPER = {"depths": "3 3 9 3", "width": 96, "size": 224, "channels": 3, "classes": 1000, "ema": 0.9999}
declare(
    Workload(
        name="convnext",
        description="depthwise convolutions and an average of the weights learn classes of pictures",
        unit="images",
        options={"depths": "1 1 3 1", "width": 16, "size": 32, "channels": 1, "classes": 10, "ema": 0.9},
        model=lambda options, hyper: Averaged(ConvNeXt(options), options["ema"]),
        data=pictures,
        loss=smoothed_loss,
        held_out=held_out_pictures,
        metric=Metric("accuracy", accuracy, "more", {"quick": 0.7, "default": 0.8}),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.05}),
        hyper={"lr": 4e-3},
        rate=Rate(warmup=0.05, constant=0.05, shape="cosine"),
        after_step=follow,
        flops_per_item=flops,
        presets={
            "quick": Preset(3, 50, batch_size=64, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 300, batch_size=128, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 300, batch_size=128, repeats=3, max_num_Bs=2, options=_PAPER),
        },
    )
)
