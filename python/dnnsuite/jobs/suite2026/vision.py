# SPDX-License-Identifier: MIT
"""Shared by the jobs on pictures: grey pictures of any size, a vision transformer's encoder, averages of weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...data import mnist
from ...data.batches import ArrayBatches
from .._job import JobConfig
from ..declared_job import widened
from ..workload import Values


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


def held_out_pictures(config: JobConfig, options: Values) -> ArrayBatches:
    """Pictures that were held out, in batches as of training."""
    return pictures(config, options, train=False)


def counted(make: Callable[[Values], nn.Module], options: Values) -> float:
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


class Encoder(nn.Module):
    """Pictures `[N, C, S, S]` → features `[N, width]`, those of the class token (Dosovitskiy et al., 2021).

    Pictures of another size than `options["size"]` have places between those of its patches.
    """

    def __init__(self, options: Values) -> None:
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


def follow(model: Any) -> None:
    """Move the average towards the weights."""
    for average, live in zip(model.average.parameters(), model.live.parameters(), strict=True):
        average.lerp_(live, 1 - model.decay)


def smoothed_loss(model: Any, x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Cross-entropy with a tenth of each label spread over all classes."""
    return F.cross_entropy(widened(model(x)), classes, label_smoothing=0.1)
