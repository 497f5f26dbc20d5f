# SPDX-License-Identifier: MIT
"""Data loading without training: images are read, decoded, cut, mirrored, normalised and sent to the device.

torchvision's ImageFolder and torch's DataLoader with `workers` processes, which have begun when setup ends. Each batch
is waited for on the device. Without a folder of the user's own, `images` JPEG files are generated and kept in the
cache.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from .._lazy import torch
from .._seeds import seed_all
from ..data import imagenet, photographs
from ..data.batches import EndlessLoader
from ..errors import InvalidArgument
from ._job import Job, JobConfig, register
from .workload import Card

_SIZE = 224


@register("loader")
class Loader(Job):
    """Reads a batch in each step, and has neither model nor loss."""

    description = "JPEG files to batches on the device"
    unit = "images"
    card = Card(
        "data loading",
        "torchvision's ImageFolder and torch's DataLoader",
        source=("russakovsky2015", "mila2019"),
        about=(
            "JPEG files are generated where there is no ImageNet: 500 x 375 pixels of 1/f noise, as large as "
            "photographs when compressed",
        ),
    )
    trains = False
    feed = "loader"
    defaults: ClassVar = {"batch_size": 256, "repeat": 30, "number": 5, "workers": 8, "images": 512}
    smoke: ClassVar = {"batch_size": 8, "repeat": 15, "number": 2, "workers": 1, "images": 64}

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        if self.options["workers"] < 0:
            raise InvalidArgument(f"workers {self.options['workers']} is negative")
        self._batches: EndlessLoader | None = None

    def setup(self) -> None:
        config = self.config
        root = imagenet.find(config.data, config.dataroot)
        folder, made = (root, None) if root else photographs.jpeg_folder(self.options["images"])  # for every copy
        dataset = imagenet.folder(folder, imagenet.augmented(_SIZE, normalized=True))
        self._origin = made or imagenet.origin_of(folder, dataset)
        seed_all(config.seed)
        self._batches = EndlessLoader(
            dataset, config.batch_size, self.options["workers"], config.seed, pin_memory=self.device.type == "cuda"
        )

    def batch(self) -> list[torch.Tensor]:
        """Images `[N, 3, 224, 224]` and their classes `[N]`, there when it returns."""
        assert self._batches is not None, "setup was not called"
        batch = [part.to(self.device, non_blocking=True) for part in next(self._batches)]
        self.synchronize()
        return batch

    def step(self) -> None:
        began_ns = time.monotonic_ns()
        self.batch()
        self.data_wait_ns += time.monotonic_ns() - began_ns

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def losses(self) -> list[float]:
        return []

    @property
    def last_loss(self) -> torch.Tensor:
        """Zero: nothing is learned."""
        return torch.zeros(())

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()

    def provenance(self) -> dict[str, Any]:
        return {
            "data": self._origin.record(),
            "model": {"transform": f"random part of {_SIZE} x {_SIZE}, mirrored, normalised"},
            "parameters": 0,
            "optimizer": "none",
        }
