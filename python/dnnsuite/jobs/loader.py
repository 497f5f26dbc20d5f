# SPDX-License-Identifier: MIT
"""Data loading without training: images are read, decoded, cut, mirrored, normalised and sent to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .._seeds import seed_all
from ..data import imagenet, photographs
from ..data.endless import EndlessLoader
from ..errors import InvalidArgument
from ._job import JobConfig, register
from ._plain_job import PlainJob

if TYPE_CHECKING:
    import torch

_SIZE = 224


@register("loader")
class Loader(PlainJob):
    """torchvision's ImageFolder and torch's DataLoader with `workers` processes, which have begun when setup ends.

    Each batch is waited for on the device. Without a folder of the user's own, `images` JPEG files are generated and
    kept in the cache. There is no loss.
    """

    description = "JPEG files to batches on the device"
    unit = "images"
    trains = False
    feed = "loader"
    defaults: ClassVar = {"batch_size": 256, "repeat": 30, "number": 5, "workers": 8, "images": 512}
    smoke: ClassVar = {"batch_size": 8, "repeat": 15, "number": 2, "workers": 1, "images": 64}

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        if self.options["workers"] < 0:
            raise InvalidArgument(f"workers {self.options['workers']} is negative")
        self._batches: EndlessLoader | None = None

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        return ["fp32"]

    def setup(self) -> None:

        config = self.config
        root = imagenet.find(config.data, config.dataroot)
        if root is None:
            folder, self._origin = photographs.jpeg_folder(self.options["images"])  # the same for every copy
            dataset = imagenet.folder(folder, imagenet.augmented(_SIZE, normalized=True))
        else:
            dataset = imagenet.folder(root, imagenet.augmented(_SIZE, normalized=True))
            self._origin = imagenet.origin_of(root, dataset)
        seed_all(config.seed)
        pinned = self.device.type == "cuda"
        self._batches = EndlessLoader(
            dataset, config.batch_size, self.options["workers"], config.seed, pin_memory=pinned
        )

    def batch(self) -> list[torch.Tensor]:
        """Images `[N, 3, 224, 224]` and their classes `[N]`, there when it returns."""
        assert self._batches is not None, "setup was not called"
        batch = [part.to(self.device, non_blocking=True) for part in next(self._batches)]
        self.synchronize()
        return batch

    def train(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return batch[0].new_zeros(())

    def losses(self) -> list[float]:
        return []

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
