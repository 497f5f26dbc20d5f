# SPDX-License-Identifier: MIT
"""Pictures from incomplete spectra by a U-Net, fastMRI's task (Zbontar et al., 2018): 70 % of the columns are left out.

The middle columns of a spectrum, which have the coarse forms, are always there. The measure is the structural
similarity (Wang et al., 2004) of held-out pictures, which the incomplete spectra alone have about half of.
"""

from __future__ import annotations

from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Card, Made, Metric, Rate, Values, Workload, models, sizes
from .vision import counted, pictures

_KEPT, _MIDDLE = 0.3, 0.08  # shares of the columns
_WINDOW = 7


def net(options: Values) -> torch.nn.Module:
    return models.UNet(options["width"], options["pools"])


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
    return F.l1_loss(models.widened(model(x)), whole)


def similarity(model: Any, x: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Structural similarity over windows of 7 x 7, of pictures in [-1, 1]."""
    found = models.widened(model(x))

    def mean(y: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(y, _WINDOW, 1)

    a, b = mean(found), mean(whole)
    var_a, var_b, both = mean(found**2) - a * a, mean(whole**2) - b * b, mean(found * whole) - a * b
    small, smaller = (0.03 * 2) ** 2, (0.01 * 2) ** 2
    return ((2 * a * b + smaller) * (2 * both + small) / ((a * a + b * b + smaller) * (var_a + var_b + small))).mean()


declare(
    Workload(
        name="unet",
        description="restoration: convolutions at two resolutions, spectra of the data",
        unit="images",
        options={"width": 16, "pools": 2, "size": 32, "channels": 1},
        model=lambda options, hyper: net(options),
        data=spectra,
        loss=loss,
        held_out=lambda config, options: spectra(config, options, train=False),
        metric=Metric("SSIM", similarity, "more", {"quick": 0.7, "default": 0.75}, batches=8),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.0}),
        hyper={"lr": 3e-3},
        rate=Rate(warmup=0.05, constant=0.05, shape="cosine"),
        clip_norm=1.0,
        flops_per_item=lambda options: counted(net, options),
        presets=sizes((40, 16), (300, 32), (200, 32), width=32, pools=4, size=320, channels=1),
        card=Card(
            "super-resolution",
            "fastMRI's U-Net: width 32, 4 pools, two convolutions a level",
            source=("zbontar2018",),
            about=(
                "spectra of mnist's pictures in place of fastMRI's, without coils",
                "the net learns what is missing in the picture, so that its output begins at the incomplete one",
            ),
            parameters=7.756,
        ),
    )
)
