# SPDX-License-Identifier: MIT
"""Image classification by a vision transformer: AdamW, warm-up and cosine, smoothed labels."""

from __future__ import annotations

from ..._lazy import torch
from ..declared_job import declare
from ..workload import Card, Made, Values, Workload, models, sizes
from .vision import IN_PLACE_OF_IMAGENET, encoder_flops, of_classes


def model(options: Values, hyper: Values) -> torch.nn.Module:
    return torch.nn.Sequential(models.Encoder(options), torch.nn.Linear(options["width"], options["classes"]))


declare(
    Workload(
        name="vit",
        description="image classification by attention",
        **of_classes(0.65),
        options={"layers": 4, "width": 96, "heads": 3, "patch": 8, "size": 32, "channels": 1, "classes": 10},
        model=model,
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.05}),
        hyper={"lr": 1e-3},
        clip_norm=1.0,
        flops_per_item=encoder_flops,
        presets=sizes(
            (50, 64), (300, 128), (300, 1024),
            layers=12, width=384, heads=6, patch=16, size=224, channels=3, classes=1000,
        ),
        card=Card(
            "image classification",
            "ViT-S/16: 12 x 384, 6 heads, patches of 16, 224 x 224",
            source=("dosovitskiy2021",),
            about=(
                f"{IN_PLACE_OF_IMAGENET}: ImageNet is `imagenet-resnet50`'s",
                "the target is 0.65, not the prototype's 0.9, which was one of digits: Fashion-MNIST, which is taken "
                "first, is harder",
            ),
            parameters=22.05,
        ),
    )
)  # fmt: skip
