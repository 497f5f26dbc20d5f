# SPDX-License-Identifier: MIT
"""Image classification by ConvNeXt (Liu et al., 2022): depthwise convolutions, and an average of the weights."""

from __future__ import annotations

from ..declared_job import declare
from ..workload import Card, Made, Values, Workload, models, sizes
from .vision import IN_PLACE_OF_IMAGENET, follow, of_classes


def flops(options: Values) -> float:
    found, before, places = 0.0, 4 * options["channels"], (options["size"] // 4) ** 2
    for stage, depth in enumerate(options["depths"].split()):
        width = options["width"] * 2**stage
        found += 6.0 * places * width * (int(depth) * (8 * width + 49) + 4 * before)
        before, places = width, places // 4
    return found


declare(
    Workload(
        name="convnext",
        description="depthwise convolutions, limited by memory",
        **of_classes(0.7),
        options={"depths": "1 1 3 1", "width": 16, "size": 32, "channels": 1, "classes": 10, "ema": 0.9},
        model=lambda options, hyper: models.Averaged(models.ConvNeXt(options), options["ema"]),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.05}),
        hyper={"lr": 4e-3},
        after_step=follow,
        flops_per_item=flops,
        presets=sizes(
            (50, 64), (300, 128), (300, 128),
            depths="3 3 9 3", width=96, size=224, channels=3, classes=1000, ema=0.9999,
        ),
        card=Card(
            "image classification",
            "ConvNeXt-T: stages of 3 3 9 3 blocks, the first 96 wide",
            source=("liu2022",),
            about=(
                IN_PLACE_OF_IMAGENET,
                "no stochastic depth; the scale of a block begins at 0.1, for the few steps of the small presets",
            ),
            parameters=28.59,
        ),
    )
)  # fmt: skip
