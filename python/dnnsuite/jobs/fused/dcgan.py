# SPDX-License-Identifier: MIT
"""DCGAN (Radford, Metz and Chintala, ICLR 2016): a generator and a discriminator, each with an Adam, on photographs."""

from __future__ import annotations

import random
from typing import Any

import torch

from ... import data, models
from .._job import JobConfig
from ..declared_job import declare, widened
from ..workload import Made, Preset, Values, Workload
from . import samplers


class GAN(torch.nn.Module):
    """The two networks."""

    def __init__(self, latent: int, generator: int, discriminator: int) -> None:
        super().__init__()
        self.discriminator = models.Discriminator(discriminator)
        self.generator = models.Generator(latent, generator)


def model(options: Values, hyper: Values) -> GAN:
    return GAN(options["nz"], options["ngf"], options["ndf"])


def images_and_noise(config: JobConfig, options: Values) -> data.batches.ArrayBatches:
    """Images `[N, 3, 64, 64]` in [-1, 1] and noise `[N, nz, 1, 1]`."""
    crops = data.crops.load(config.data, config.dataroot, seed=config.data_seed)

    def prepare(generator: torch.Generator, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        noise = torch.randn(len(images), options["nz"], 1, 1, generator=generator)
        return images.float() / 127.5 - 1, noise

    return data.batches.ArrayBatches(
        torch.from_numpy(crops.images), batch_size=config.batch_size, seed=config.data_seed,
        record=crops.origin.record(), prepare=prepare,
    )  # fmt: skip


def judged(gan: Any, real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the discriminator on real images and on the generator's."""
    softplus = torch.nn.functional.softplus
    found, made = widened(gan.discriminator(real)), widened(gan.discriminator(gan.generator(noise)))
    return softplus(-found).mean() + softplus(made).mean()


def passed(gan: Any, real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the generator's images with the label of real ones."""
    return torch.nn.functional.softplus(-widened(gan.discriminator(gan.generator(noise)))).mean()


def sample(generator: random.Random) -> dict[str, float]:
    """HFTA's ranges."""
    return {"lr": generator.uniform(1e-4, 1e-3), "beta1": generator.uniform(0.3, 0.99)}


WORKLOAD = Workload(
    name="dcgan",
    description="DCGAN on images of 64 x 64, two Adams",
    unit="images",
    options={"nz": 100, "ngf": 64, "ndf": 64},
    hyper={"lr": 5e-4, "beta1": 0.5},
    sample=sample,
    model=model,
    data=images_and_noise,
    loss={"discriminator": judged, "generator": passed},
    optimizer=Made("Adam", {"lr": "lr", "betas": ("beta1", 0.999)}),
    presets={
        "quick": Preset(3, 16, batch_size=4, plan=(1, 4), budget_s=15.0, options={"ngf": 16, "ndf": 16}),
        "default": Preset(
            3, 4, batch_size=16, plan=(1, 2, 4), budget_s=50.0, options={"ngf": 16, "ndf": 16}, cuda=samplers.ON_CUDA
        ),
        "paper": Preset(5, 300, batch_size=128, repeats=3, max_num_Bs=10),
    },
)

declare(WORKLOAD)
