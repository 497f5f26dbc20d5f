# SPDX-License-Identifier: MIT
"""A sub-pixel convolution network makes pictures larger: ESPCN, Adam, mean squared error on the luminance of crops.

The pictures are decoded by `workers` threads during setup and stay in memory; a second rate has a loader in the timed
loop. `no_checks` is the original's (save nothing) and the only behaviour here.
"""

from __future__ import annotations

from typing import Any

from .._lazy import torch
from ..data import batches, super_resolution
from ..data.batches import EndlessLoader, Order
from ..errors import InvalidArgument, Unavailable
from ._job import JobConfig
from .cards import FROM_MEMORY
from .declared_job import declare
from .workload import Card, Made, Metric, Preset, Values, Workload, models

CROP = 256


def pairs(config: JobConfig, options: Values) -> batches.BatchesInTurn:
    """Small pictures `[N, 1, 256/r, 256/r]` and the large ones `[N, 1, 256, 256]`, in [0, 1]."""
    train, _, origin = _loaded(config, options)

    def begin() -> Any:
        order = Order(len(train[0]), config.data_seed)

        def draw() -> tuple[torch.Tensor, ...]:
            chosen = order.take(config.batch_size).to(config.device, non_blocking=True)
            return tuple(part[chosen].float() / 255 for part in train)

        return draw

    return batches.BatchesInTurn(begin, origin.record())


def test_pairs(config: JobConfig, options: Values) -> batches.WholeBatch:
    """All pairs of the test part as one batch, and how many are looked at together, `[n]` zeros."""
    if options["testBatchSize"] < 1:
        raise InvalidArgument(f"testBatchSize {options['testBatchSize']} is below 1")
    _, test, origin = _loaded(config, options)
    together = torch.zeros(options["testBatchSize"], device=config.device)
    return batches.WholeBatch((*(part.float() / 255 for part in test), together), origin.record())


def _loaded(config: JobConfig, options: Values) -> Any:
    train, test, origin = super_resolution.load(
        config.data, config.dataroot, options["upscale_factor"], CROP, config.data_seed, options["workers"]
    )
    on_device = ([torch.from_numpy(array)[:, None].to(config.device) for array in part] for part in (train, test))
    return *on_device, origin


def files(config: JobConfig, options: Values) -> Any:
    try:
        pictures = super_resolution.Decoding(config.data, config.dataroot, options["upscale_factor"], CROP)
    except Unavailable:  # noise was asked for: nothing is decoded
        return None
    loader = EndlessLoader(pictures, config.batch_size, options["workers"], config.data_seed)
    return loader, lambda batch: tuple(part.float() / 255 for part in batch), pictures.origin


def loss(model: Any, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(models.widened(model(low)), high)


def psnr(model: Any, low: torch.Tensor, high: torch.Tensor, together: torch.Tensor) -> torch.Tensor:
    """Peak signal-to-noise ratio in dB, the mean over groups of pictures."""
    parts = zip(low.split(len(together)), high.split(len(together)), strict=True)
    return torch.stack([-10 * loss(model, *part).double().log10() for part in parts]).mean()


declare(
    Workload(
        name="reso",
        description="ESPCN makes pictures twice as large",
        unit="images",
        options={"upscale_factor": 2, "testBatchSize": 8, "workers": 8, "no_checks": True, "lr": 0.1},
        model=lambda options, hyper: models.ESPCN(options["upscale_factor"]),
        data=pairs,
        loss=loss,
        held_out=test_pairs,
        metric=Metric("psnr", psnr, batches=1),
        optimizer=Made("Adam", {"lr": "lr"}),
        hyper={"lr": 0.1},
        files=files,
        reseed=False,
        presets={
            "quick": Preset(3, 4, batch_size=1, plan=(1, 2), budget_s=40.0, observed=(12, 1), options={"workers": 1}),
            "default": Preset(3, 4, batch_size=64, plan=(1, 2, 4), budget_s=95.0, observed=(50, 20)),
        },
        card=Card(
            "super-resolution",
            "ESPCN: convolutions of 64, 64, 32 and pixel shuffle; mean squared error",
            source=("shi2016", "arbelaez2011", "mila2019"),
            about=(FROM_MEMORY, "nothing is saved (the original's --no-checks)"),
            changes=("a second rate with the loader in the loop (numbers)",),
        ),
    )
)
