# SPDX-License-Identifier: MIT
"""DCGAN (Radford, Metz and Chintala, ICLR 2016): a generator and a discriminator, each with an Adam, on photographs.

In each step the discriminator learns first. The photographs lie on the device; a second rate has a loader in the timed
loop. `dcgan_all` has one process per device, with pictures and noise of its own.
"""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from typing import Any

from .._lazy import torch
from ..data import batches, imagenet, photographs
from ..errors import InvalidArgument
from . import distributed
from ._job import JobConfig
from .cards import FROM_MEMORY, ON_EVERY_DEVICE, REAL_PHOTOGRAPHS
from .declared_job import declare
from .fused import ON_CUDA
from .workload import Card, Made, Preset, Values, Workload, models

_SIZE = 64


def images_and_noise(config: JobConfig, options: Values, scope: str = "student") -> batches.ArrayBatches:
    """Images `[N, 3, 64, 64]` in [-1, 1] and noise `[N, nz, 1, 1]`."""
    if options["imageSize"] != _SIZE:
        raise InvalidArgument(f"imageSize {options['imageSize']}: the layers of DCGAN are for images of {_SIZE}")
    found = photographs.load_crops(config.data, config.dataroot, _SIZE, seed=config.data_seed)
    place = distributed.place_of(scope)

    def prepare(generator: torch.Generator, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return images.float() / 127.5 - 1, _noise(len(images), options, generator)

    return batches.ArrayBatches(
        torch.from_numpy(found.images).to(config.device), batch_size=config.batch_size,
        seed=config.data_seed + (place.rank << 32), record=found.origin.record(), prepare=prepare,
    )  # fmt: skip


def files(config: JobConfig, options: Values, scope: str = "student") -> Any:
    place = distributed.place_of(scope)
    loader, origin = imagenet.stream(
        config.data, config.dataroot, config.batch_size, _SIZE, seed=config.data_seed, workers=options["workers"],
        rank=place.rank, world_size=place.world_size,
    )  # fmt: skip
    return loader, lambda batch: (batch[0] * 2 - 1, _noise(len(batch[0]), options, None)), origin


def _noise(count: int, options: Values, generator: torch.Generator | None) -> torch.Tensor:
    return torch.randn(count, options["nz"], 1, 1, generator=generator)


def judged(gan: Any, real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the discriminator on real images and on the generator's."""
    softplus = torch.nn.functional.softplus
    found, made = models.widened(gan.discriminator(real)), models.widened(gan.discriminator(gan.generator(noise)))
    return softplus(-found).mean() + softplus(made).mean()


def passed(gan: Any, real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the generator's images with the label of real ones."""
    return torch.nn.functional.softplus(-models.widened(gan.discriminator(gan.generator(noise)))).mean()


def sample(generator: random.Random) -> dict[str, float]:
    """Draw from HFTA's ranges."""
    return {"lr": generator.uniform(1e-4, 1e-3), "beta1": generator.uniform(0.3, 0.99)}


_CARD = Card(
    "generative",
    "DCGAN, width 64, noise of 100",
    source=("radford2016", "yu2015", "wang2021", "mila2019"),
    about=(
        FROM_MEMORY,
        "HFTA's form: each network has a loss of its own, for which the generator draws",
        "errors are fetched once for each observation: the original's three waits in each step are no part of training",
    ),
    changes=(
        "one job for `run` and `workflow`: the generator draws once for each network's step, photographs change with "
        "every batch (numbers)",
        REAL_PHOTOGRAPHS,
    ),
)
WORKLOAD = Workload(
    name="dcgan",
    description="DCGAN on images of 64 x 64, two Adams",
    unit="images",
    options={"imageSize": _SIZE, "nz": 100, "ngf": 64, "ndf": 64, "lr": 2e-4, "beta1": 0.5, "workers": 8},
    hyper={"lr": 2e-4, "beta1": 0.5},
    sample=sample,
    model=lambda options, hyper: models.GAN(options["nz"], options["ngf"], options["ndf"]),
    data=images_and_noise,
    loss={"discriminator": judged, "generator": passed},
    optimizer=Made("Adam", {"lr": "lr", "betas": ("beta1", 0.999)}),
    presets={
        "quick": Preset(
            3, 16, batch_size=4, plan=(1, 4), budget_s=40.0, observed=(12, 1),
            options={"ngf": 16, "ndf": 16, "workers": 1},
        ),
        "default": Preset(
            3, 4, batch_size=16, plan=(1, 2, 4), budget_s=95.0, options={"ngf": 16, "ndf": 16}, cuda=ON_CUDA
        ),
        "paper": Preset(5, 300, batch_size=128, repeats=3, max_num_Bs=10),
        "baselines": Preset(5, 300, batch_size=128, observed=(50, 10)),
    },
    files=files,
    card=_CARD,
)  # fmt: skip

declare(WORKLOAD)
declare(
    replace(
        WORKLOAD,
        name="dcgan_all",
        description="DCGAN on every device of the machine",
        data=functools.partial(images_and_noise, scope="all"),
        files=functools.partial(files, scope="all"),
        spread=True,
        card=_CARD._replace(source=(*_CARD.source, "li2020"), about=(*_CARD.about, ON_EVERY_DEVICE)),
    )
)
