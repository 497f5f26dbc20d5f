# SPDX-License-Identifier: MIT
"""Jobs on pictures, grey ones of any size, and their parts: operations, an average that follows the weights.

`vit` classifies by a vision transformer: AdamW, warm-up and cosine, smoothed labels. `convnext` does by ConvNeXt (Liu
et al., 2022): depthwise convolutions, and an average of the weights.

`dit` is a diffusion transformer by flow matching: it predicts noise - picture at (1 - t) picture + t noise, given the
class. Validation is MLPerf's way: the loss on held-out pictures, the mean over t = 0, 1/8, ... 7/8. An average of the
weights is what is validated.

`unet` makes pictures from incomplete spectra, fastMRI's task (Zbontar et al., 2018): 70 % of the columns are left out.
The middle columns of a spectrum, which have the coarse forms, are always there. The measure is the structural
similarity (Wang et al., 2004) of held-out pictures, which the incomplete spectra alone have about half of.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from ...data import mnist
from ...data.batches import ArrayBatches
from .._job import JobConfig
from ..declared_job import accuracy, declare
from ..workload import Card, Made, Metric, Rate, Values, Workload, models, sizes

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


def vit(options: Values, hyper: Values) -> torch.nn.Module:
    return torch.nn.Sequential(models.Encoder(options), torch.nn.Linear(options["width"], options["classes"]))


declare(
    Workload(
        name="vit",
        description="image classification by attention",
        **of_classes(0.65),
        options={"layers": 4, "width": 96, "heads": 3, "patch": 8, "size": 32, "channels": 1, "classes": 10},
        model=vit,
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


def convnext_flops(options: Values) -> float:
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
        flops_per_item=convnext_flops,
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


def flow_loss(model: Any, x: torch.Tensor, t: torch.Tensor, kind: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
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
        loss=flow_loss,
        held_out=lambda config, options: noisy(config, options, train=False),
        metric=Metric("validation loss", flow_loss, "less", {"quick": 0.65, "default": 0.5}, batches=8),
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


def restoring_loss(model: Any, x: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
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
        loss=restoring_loss,
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
