# SPDX-License-Identifier: MIT
"""Shared by the jobs on pictures: grey pictures of any size, their operations, an average that follows the weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from ...data import mnist
from ...data.batches import ArrayBatches
from .._job import JobConfig
from ..declared_job import accuracy
from ..workload import Metric, Rate, Values, models

IN_PLACE_OF_IMAGENET = "pictures of mnist's kind in place of ImageNet, scaled up"


def pictures(
    config: JobConfig,
    options: Values,
    train: bool = True,
    prepare: Callable[..., tuple[torch.Tensor, ...]] | None = None,
) -> ArrayBatches:
    """Pictures `[N, C, S, S]` in [-1, 1] and their classes `[N]`.

    Args:
        train: the part to train on, or the one that is held out.
        prepare: (generator, pictures, classes) → the tensors of a batch, instead of the two.
    """
    found = mnist.load(config.data, config.dataroot, config.data_seed, train)
    size, channels = options["size"], options["channels"]

    def batch(generator: torch.Generator, images: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = F.pad(images[:, None].float() / 127.5 - 1, [2] * 4, value=-1.0)
        if size != own.shape[-1]:
            own = F.interpolate(own, size=(size, size), mode="bilinear", align_corners=False)
        own = own.expand(-1, channels, -1, -1)
        return (own, classes.long()) if prepare is None else prepare(generator, own, classes.long())

    return ArrayBatches(
        torch.from_numpy(found.images.copy()), torch.from_numpy(found.labels.copy()),
        batch_size=config.batch_size, seed=config.data_seed, record=found.origin.record(), prepare=batch,
    )  # fmt: skip


def crops(
    x: torch.Tensor, part: tuple[float, float], size: int, noise: float, generator: torch.Generator
) -> torch.Tensor:
    """Squares of a random part of the area of pictures `[N, C, S, S]`, of a random contrast and in noise."""
    count, channels = x.shape[:2]
    side = (part[0] + (part[1] - part[0]) * torch.rand(count, generator=generator)).sqrt()
    middle = (1 - side)[:, None] * (2 * torch.rand(count, 2, generator=generator) - 1)
    place = torch.zeros(count, 2, 3)
    place[:, 0, 0] = place[:, 1, 1] = side
    place[:, :, 2] = middle
    grid = F.affine_grid(place, [count, channels, size, size], align_corners=False)
    found = F.grid_sample((x + 1) / 2, grid, align_corners=False)
    contrast = 0.5 + torch.rand(count, 1, 1, 1, generator=generator)
    return contrast * found + noise * torch.randn(found.shape, generator=generator)


def counted(make: Callable[[Values], torch.nn.Module], options: Values) -> float:
    """Operations of a step on a picture, as torch counts them for convolutions without groups, on the meta device."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        found = make(options)(torch.empty(1, options["channels"], options["size"], options["size"]))
        sum(x.sum() for x in (found if isinstance(found, tuple) else [found])).backward()
    return float(counter.get_total_flops())


def encoder_flops(options: Values, conditioned: int = 0) -> float:
    """Operations for a picture in patches: those of the layers, and what each makes of one condition."""
    layers, width, places = options["layers"], options["width"], (options["size"] // options["patch"]) ** 2
    patches = 4 * options["channels"] * width * options["size"] ** 2
    return 6.0 * layers * width**2 * (12 * places + conditioned) + 12.0 * layers * width * places**2 + patches


def follow(model: Any) -> None:
    """Move the average towards the weights."""
    for average, live in zip(model.average.parameters(), model.live.parameters(), strict=True):
        average.lerp_(live, 1 - model.decay)


def smoothed_loss(model: Any, x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Cross-entropy with a tenth of each label spread over all classes."""
    return F.cross_entropy(models.widened(model(x)), classes, label_smoothing=0.1)


def of_classes(quick: float) -> dict[str, Any]:
    """Fields of all classifiers of pictures, with their target at quick size."""
    return {
        "unit": "images", "data": pictures, "held_out": functools.partial(pictures, train=False), "loss": smoothed_loss,
        "metric": Metric("accuracy", accuracy, "more", {"quick": quick, "default": 0.8}),
        "rate": Rate(warmup=0.05, constant=0.05, shape="cosine"),
    }  # fmt: skip
