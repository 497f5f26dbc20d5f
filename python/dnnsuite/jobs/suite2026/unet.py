# SPDX-License-Identifier: MIT
"""Pictures from incomplete spectra by a U-Net, fastMRI's task (Zbontar et al., 2018): 70 % of the columns are left out.

The middle columns of a spectrum, which have the coarse forms, are always there. The measure is the structural
similarity (Wang et al., 2004) of held-out pictures, which the incomplete spectra alone have about half of.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .._job import JobConfig
from ..declared_job import declare, widened
from ..workload import Made, Metric, Preset, Rate, Values, Workload
from .vision import counted, pictures

_KEPT, _MIDDLE = 0.3, 0.08  # shares of the columns
_WINDOW = 7


class _Two(nn.Sequential):
    """Two convolutions, each with a norm of each picture."""

    def __init__(self, before: int, width: int) -> None:
        layers: list[nn.Module] = []
        for channels in (before, width):
            layers += [
                nn.Conv2d(channels, width, 3, padding=1, bias=False),
                nn.InstanceNorm2d(width),
                nn.LeakyReLU(0.2),
            ]
        super().__init__(*layers)


class UNet(nn.Module):
    """Pictures `[N, 1, S, S]` → pictures; `pools` times the resolution is halved and restored."""

    def __init__(self, options: Values) -> None:
        super().__init__()
        widths = [options["width"] * 2**i for i in range(options["pools"] + 1)]
        self.down = nn.ModuleList(_Two(i, o) for i, o in zip([1, *widths], widths, strict=False))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2, bias=False) for i, o in pairs)
        self.up = nn.ModuleList(_Two(2 * o, o) for _, o in pairs)
        self.leave = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, kept = x, []
        for place, down in enumerate(self.down):
            h = down(F.avg_pool2d(h, 2) if place else h)
            kept.append(h)
        for grow, up, beside in zip(self.grow, self.up, kept[-2::-1], strict=True):
            h = up(torch.cat([F.leaky_relu(grow(h), 0.2), beside], 1))
        return x + self.leave(h)


def spectra(config: JobConfig, options: Values, train: bool = True) -> Any:
    """Pictures whose spectra lack columns `[N, 1, S, S]`, and the pictures."""

    def prepare(generator: torch.Generator, x: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        size = x.shape[-1]
        kept = torch.rand(len(x), 1, 1, size, generator=generator) < _KEPT - _MIDDLE
        kept |= ((torch.arange(size) - size // 2).abs() <= _MIDDLE * size / 2 + 1)[None, None, None]
        spectrum = torch.fft.fftshift(torch.fft.fft2(x), dim=(-2, -1)) * kept
        return torch.fft.ifft2(torch.fft.ifftshift(spectrum, dim=(-2, -1))).real, x

    return pictures(config, options, train, prepare)


def loss(model: Any, x: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    return F.l1_loss(widened(model(x)), whole)


def similarity(model: Any, x: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Structural similarity over windows of 7 x 7, of pictures in [-1, 1]."""
    found = widened(model(x))

    def mean(y: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(y, _WINDOW, 1)

    a, b = mean(found), mean(whole)
    var_a, var_b, both = mean(found**2) - a * a, mean(whole**2) - b * b, mean(found * whole) - a * b
    small, smaller = (0.03 * 2) ** 2, (0.01 * 2) ** 2
    return ((2 * a * b + smaller) * (2 * both + small) / ((a * a + b * b + smaller) * (var_a + var_b + small))).mean()


_PAPER = {"width": 32, "pools": 4, "size": 320, "channels": 1}
declare(
    Workload(
        name="unet",
        description="a U-Net restores pictures from incomplete spectra",
        unit="images",
        options={"width": 16, "pools": 2, "size": 32, "channels": 1},
        model=lambda options, hyper: UNet(options),
        data=spectra,
        loss=loss,
        held_out=lambda config, options: spectra(config, options, train=False),
        metric=Metric("SSIM", similarity, "more", {"quick": 0.7, "default": 0.75}, batches=8),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.0}),
        hyper={"lr": 3e-3},
        rate=Rate(warmup=0.05, constant=0.05, shape="cosine"),
        clip_norm=1.0,
        flops_per_item=lambda options: counted(UNet, options),
        presets={
            "quick": Preset(3, 40, batch_size=16, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 300, batch_size=32, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 200, batch_size=32, repeats=3, max_num_Bs=2, options=_PAPER),
        },
    )
)
