# SPDX-License-Identifier: MIT
"""A diffusion transformer by flow matching: it predicts noise - picture at (1 - t) picture + t noise, given the class.

Validation is MLPerf's way: the loss on held-out pictures, the mean over t = 0, 1/8, ... 7/8. An average of the weights
is what is validated.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from ...data.batches import ArrayBatches
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Card, Made, Metric, Rate, Values, Workload, models, sizes
from .vision import encoder_flops, follow, pictures

_TIMES = 8  # of the validation


def noisy(config: JobConfig, options: Values, train: bool = True) -> ArrayBatches:
    """Noisy pictures, times, classes and velocities; held out, a batch has each time as often."""

    def prepare(generator: torch.Generator, clean: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        noise = torch.randn(clean.shape, generator=generator)
        t = torch.rand(len(clean), generator=generator) if train else torch.arange(len(clean)) % _TIMES / _TIMES
        at = t[:, None, None, None]
        return (1 - at) * clean + at * noise, t, classes, noise - clean

    own = config if train else dataclasses.replace(config, batch_size=8 * _TIMES)
    return pictures(own, options, train, prepare)


def loss(model: Any, x: torch.Tensor, t: torch.Tensor, kind: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(models.widened(model(x, t, kind)), flow)


declare(
    Workload(
        name="dit",
        description="diffusion, by flow matching",
        unit="images",
        options={
            "layers": 4, "width": 96, "heads": 3, "patch": 4, "channels": 1, "size": 32, "classes": 10, "ema": 0.9,
        },
        model=lambda options, hyper: models.Averaged(models.DiffusionTransformer(options), options["ema"]),
        data=noisy,
        loss=loss,
        held_out=lambda config, options: noisy(config, options, train=False),
        metric=Metric("validation loss", loss, "less", {"quick": 0.65, "default": 0.5}, batches=8),
        optimizer=Made("AdamW", {"lr": "lr", "betas": (0.9, 0.99), "weight_decay": 0.0}),
        hyper={"lr": 2e-3},
        rate=Rate(warmup=0.1, constant=0.5),
        clip_norm=1.0,
        after_step=follow,
        flops_per_item=lambda options: encoder_flops(options, conditioned=6),
        presets=sizes(
            (40, 16), (300, 64), (100, 64),
            layers=28, width=1152, heads=16, patch=2, channels=4, classes=1000, ema=0.9999,
        ),
        card=Card(
            "generative",
            "DiT-XL/2 on latents of 32 x 32 x 4: 28 x 1152, 16 heads, patches of 2",
            source=("peebles2023", "lipman2023"),
            about=("pictures in place of ImageNet's latents, four times over at paper size",),
            parameters=675,
        ),
    )
)  # fmt: skip
