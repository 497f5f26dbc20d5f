# SPDX-License-Identifier: MIT
"""A variational auto-encoder learns pictures of 28 x 28: 784-400-20-400-784, Adam, losses summed over the batch.

All pictures are in memory, and a batch is taken from them; a second rate has a loader in the timed loop.
"""

from __future__ import annotations

from typing import Any

from .._lazy import torch
from ..data import batches, mnist
from ..data.batches import EndlessLoader, Order
from ._job import JobConfig
from .cards import FROM_MEMORY
from .declared_job import declare
from .workload import Card, Made, Metric, Preset, Values, Workload, models

_TEST_BATCH = 128  # of the original, whatever the training has


def pictures(config: JobConfig, options: Values) -> batches.BatchesInTurn:
    """Pictures `[N, 784]` in [0, 1]."""
    found = mnist.load(config.data, config.dataroot, config.data_seed)
    pixels = _pixels(found, config.device)

    def begin() -> Any:
        order = Order(len(pixels), config.data_seed)
        return lambda: (pixels[order.take(config.batch_size).to(pixels.device, non_blocking=True)].float() / 255,)

    return batches.BatchesInTurn(begin, found.origin.record())


def test_pictures(config: JobConfig, options: Values) -> batches.WholeBatch:
    """All pictures of the test part as one batch."""
    found = mnist.load(config.data, config.dataroot, config.data_seed, train=False)
    pixels = _pixels(found, config.device)
    return batches.WholeBatch((pixels.float() / 255,), found.origin.record())


def files(config: JobConfig, options: Values) -> Any:
    """Pictures one by one as an image and then a tensor, as torchvision's data set has them."""
    found = mnist.load(config.data, config.dataroot, config.data_seed)
    loader = EndlessLoader(mnist.OneByOne(found), config.batch_size, 1, config.data_seed)
    return loader, lambda batch: (batch,), found.origin


def loss(model: Any, x: torch.Tensor) -> torch.Tensor:
    """Cross-entropy and divergence, summed over the batch."""
    reconstruction, mean, log_variance = model(x)
    with torch.autocast(x.device.type, enabled=False):  # which refuses this cross-entropy on a GPU
        return models.negative_elbo(
            models.widened(reconstruction), x, models.widened(mean), models.widened(log_variance)
        )


def loss_per_image(model: Any, x: torch.Tensor) -> torch.Tensor:
    return sum(loss(model, part).double() for part in x.split(_TEST_BATCH)) / len(x)  # type: ignore[return-value]


def _pixels(found: mnist.Pictures, device: str) -> torch.Tensor:
    return torch.from_numpy(found.images.copy()).flatten(1).to(device)


declare(
    Workload(
        name="vae",
        description="a variational auto-encoder learns MNIST",
        unit="images",
        model=lambda options, hyper: models.VAE(),
        data=pictures,
        loss=loss,
        held_out=test_pictures,
        metric=Metric("test_loss_per_image", loss_per_image, "less", batches=1),
        optimizer=Made("Adam", {"lr": "lr"}),
        hyper={"lr": 1e-3},
        files=files,
        reseed=False,
        presets={
            "quick": Preset(3, 8, batch_size=128, plan=(1, 4), budget_s=40.0, observed=(15, 5)),
            "default": Preset(3, 16, batch_size=128, plan=(1, 2, 4), budget_s=95.0, observed=(100, 30)),
        },
        card=Card(
            "generative",
            "MLP 784-400-20-400-784; cross-entropy and divergence",
            source=("kingma2014", "lecun1998", "mila2019"),
            about=(FROM_MEMORY, "one loader for all observations: the original starts a new one in each"),
            changes=("a second rate with the loader in the loop (numbers)",),
        ),
    )
)
