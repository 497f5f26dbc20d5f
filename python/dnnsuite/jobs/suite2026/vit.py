# SPDX-License-Identifier: MIT
"""Image classification by a vision transformer, ViT-S/16 at paper size: AdamW, warm-up and cosine, smoothed labels."""

from __future__ import annotations

from torch import nn

from ..declared_job import accuracy, declare
from ..workload import Made, Metric, Preset, Rate, Workload
from .vision import Encoder, encoder_flops, held_out_pictures, pictures, smoothed_loss

_PAPER = {"layers": 12, "width": 384, "heads": 6, "patch": 16, "size": 224, "channels": 3, "classes": 1000}
declare(
    Workload(
        name="vit",
        description="a vision transformer learns classes of pictures",
        unit="images",
        options={"layers": 4, "width": 96, "heads": 3, "patch": 8, "size": 32, "channels": 1, "classes": 10},
        model=lambda options, hyper: nn.Sequential(Encoder(options), nn.Linear(options["width"], options["classes"])),
        data=pictures,
        loss=smoothed_loss,
        held_out=held_out_pictures,
        metric=Metric("accuracy", accuracy, "more", {"quick": 0.65, "default": 0.8}),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.05}),
        hyper={"lr": 1e-3},
        rate=Rate(warmup=0.05, constant=0.05, shape="cosine"),
        clip_norm=1.0,
        flops_per_item=encoder_flops,
        presets={
            "quick": Preset(3, 50, batch_size=64, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 300, batch_size=128, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 300, batch_size=1024, repeats=3, max_num_Bs=2, options=_PAPER),
        },
    )
)
