# SPDX-License-Identifier: MIT
"""Training steps of a configuration as a job, to be rated or observed: no validation, no checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import cycle
from typing import Any, ClassVar

import torch
from torch.utils.data import ConcatDataset, TensorDataset

from ..data import imagenet, imagenet_shards
from ..data.endless import EndlessLoader
from ..errors import InvalidArgument
from ..jobs import Job, JobConfig, register
from .configurations import configuration
from .experiment import Experiment, experiment_of
from .order import Share
from .phases import Phases
from .processes import Processes
from .settings import Settings
from .sources import Data, find_data
from .stepper import Stepper

__all__ = ["TrainingWorkload"]

_POOL = 2  # batches made beforehand, where the user has no images
_SIZE = 224


class TrainingWorkload(Job):
    """Steps of the default configuration of `file`, through its loader where the user has images.

    Without images under `dataroot`, batches of uniform noise lie in memory, and the record says so.
    """

    family: ClassVar[str] = "training"
    families: ClassVar[tuple[str, ...]] = ("training",)
    unit = "images"
    file: ClassVar[str]

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        if config.B != 0:
            raise InvalidArgument(
                f"job {self.name} trains one plain model, not an array: B must be 0, got {config.B}"
            )
        found = configuration("default", self.file).changed(config.options)
        amp = {} if config.precision == "fp32" else {"enable_amp": True, "amp_dtype": config.precision}
        self.settings: Settings = replace(
            found.changed(amp), batch_size=config.batch_size, seed=config.seed, data=config.data
        )
        self._loader: EndlessLoader | None = None
        self._last: torch.Tensor | None = None

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        return ["fp32", "bf16", "fp16"]

    @classmethod
    def option_defaults(cls) -> Mapping[str, Any]:
        """Keys of the configuration and their values."""
        return configuration("default", cls.file).to_dict()

    @classmethod
    def preset(cls, name: str, device: str) -> dict[str, Any]:
        """`quick`: an eighth of the width, pictures of 64 pixels."""
        if name != "quick":
            return {"options": {}}
        quick = Settings().quick()
        return {"options": {"width": quick.width, "image_size": 64, "num_data_workers": 0}}

    def setup(self) -> None:
        if self.config.threads:
            torch.set_num_threads(self.config.threads)
        root = self.config.dataroot
        real = self._images_under(root)
        self._data = find_data(self.settings, root) if real else self._noise()
        self._experiment: Experiment = experiment_of(
            self.name, self.settings, self._data, self.config.device, self.file
        )
        self._processes = Processes(self.config.device)
        self._stepper = Stepper(self._experiment, self._processes)
        self._stepper.model.train()
        self._phases = Phases(0)
        self._share = Share(0, [], self.config.batch_size, self.config.batch_size)
        self._batches = self._loaded() if real else cycle(self._pool)

    def _images_under(self, root: str | None) -> bool:
        """True if the user has images there, and they are wanted."""
        if self.config.data == "synthetic" or (root and imagenet_shards.find(root)):
            return self.config.data != "synthetic"
        return imagenet.find(self.config.data, root) is not None

    def _noise(self) -> Data:
        """Samples of uniform noise, as many as the pool has."""
        size = self.settings.image_size or _SIZE
        pool = imagenet.pool(
            "synthetic", None, self.config.batch_size, _POOL, size, seed=self.config.data_seed
        )
        classes = self.settings.num_classes
        self._pool = [(images, labels % classes) for images, labels in pool.batches]
        samples: Any = ConcatDataset(TensorDataset(*batch) for batch in self._pool)
        record = pool.origin.record()
        return Data(samples, samples, classes, pool.origin.source, {"train": record, "valid": record})

    def _loaded(self) -> Iterator[Any]:
        self._loader = EndlessLoader(
            self._data.train,
            self.config.batch_size,
            self.settings.num_data_workers,
            self.config.data_seed,
            pin_memory=self.config.device != "cpu",
        )
        return self._loader

    def batch(self) -> Any:
        """Return the next batch, on the device: the wait for data."""
        return self._stepper.place({0: next(self._batches)})

    def step(self) -> None:
        images, labels = self.batch()
        self._last, _ = self._stepper.train(images, labels, self._share, self._phases)()

    def synchronize(self) -> None:
        if self._processes.device.type == "cuda":
            torch.cuda.synchronize(self._processes.device)

    def losses(self) -> list[float]:
        return [] if self._last is None else [float(self._last)]

    def provenance(self) -> dict[str, Any]:
        parameters = sum(each.numel() for each in self._stepper.model.parameters())
        data = {**self._data.record["train"], "source": self._data.source}
        return {"data": data, "model": {"name": self.settings.model, "parameters": parameters}}

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()


@register("imagenet-resnet50")
class ImageNetResNet50(TrainingWorkload):
    """TBD's ResNet-50."""

    description = "ResNet-50 on ImageNet, SGD, as TBD trains it"
    file = "imagenet-resnet50"
    defaults: ClassVar[Mapping[str, Any]] = {"batch_size": 32}
