# SPDX-License-Identifier: MIT
"""A diffusion transformer by flow matching: it predicts noise - picture at (1 - t) picture + t noise, given the class.

Validation is MLPerf's way: the loss on held-out pictures, the mean over t = 0, 1/8, ... 7/8. An average of the weights
is what is validated.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...data.batches import ArrayBatches
from .._job import JobConfig
from ..declared_job import declare, widened
from ..workload import Made, Metric, Preset, Rate, Values, Workload
from .vision import Averaged, encoder_flops, follow, pictures

_FREQUENCIES = 32
_TIMES = 8  # of the validation


class _Layer(nn.Module):
    """Attention and a feed-forward whose norms are scaled, shifted and gated by the condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        scale, shift, gate, ff_scale, ff_shift, ff_gate = self.modulation(condition).chunk(6, -1)
        x = x + gate * self._attend(self.norm(x) * (1 + scale) + shift)
        return x + ff_gate * self.ff(self.norm(x) * (1 + ff_scale) + ff_shift)

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        parts = self.mixed(x).view(n, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(n, length, width))


class DiffusionTransformer(nn.Module):
    """Noisy pictures `[N, C, S, S]`, times `[N]` and classes `[N]` → velocities `[N, C, S, S]`."""

    def __init__(self, options: Values) -> None:
        super().__init__()
        width, patch, channels = options["width"], options["patch"], options["channels"]
        self.patch, self.size = patch, options["size"]
        self.enter = nn.Conv2d(channels, width, patch, patch)
        self.place = nn.Parameter(torch.randn((self.size // patch) ** 2, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(2 * _FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))
        self.kind = nn.Embedding(options["classes"], width)
        self.layers = nn.ModuleList(_Layer(width, options["heads"]) for _ in range(options["layers"]))
        self.norm, self.last = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, 2 * width)
        self.leave = nn.Linear(width, patch * patch * channels)
        for layer in (self.last, self.leave):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        rates = torch.exp(-math.log(1e4) * torch.arange(_FREQUENCIES) / _FREQUENCIES)
        self.rates: torch.Tensor
        self.register_buffer("rates", 1000 * rates)

    def forward(self, x: torch.Tensor, t: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        angles = t[:, None] * self.rates
        condition = F.silu(self.time(torch.cat([angles.cos(), angles.sin()], -1)) + self.kind(kind))[:, None]
        h = self.enter(x).flatten(2).transpose(1, 2) + self.place
        for layer in self.layers:
            h = layer(h, condition)
        scale, shift = self.last(condition).chunk(2, -1)
        patches = self.leave(self.norm(h) * (1 + scale) + shift).transpose(1, 2)
        return F.fold(patches, self.size, self.patch, stride=self.patch)


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
    return F.mse_loss(widened(model(x, t, kind)), flow)


_PAPER = {"layers": 28, "width": 1152, "heads": 16, "patch": 2, "channels": 4, "classes": 1000, "ema": 0.9999}
declare(
    Workload(
        name="dit",
        description="a diffusion transformer learns pictures by flow matching",
        unit="images",
        options={
            "layers": 4, "width": 96, "heads": 3, "patch": 4, "channels": 1, "size": 32, "classes": 10, "ema": 0.9,
        },
        model=lambda options, hyper: Averaged(DiffusionTransformer(options), options["ema"]),
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
        presets={
            "quick": Preset(3, 40, batch_size=16, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 300, batch_size=64, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 100, batch_size=64, repeats=3, max_num_Bs=2, options=_PAPER),
        },
    )
)  # fmt: skip
