# SPDX-License-Identifier: MIT
"""TBD's ResNet-50 as a workload: the configuration `imagenet-resnet50`, through its loader where there are images.

Without images under the dataroot, batches of uniform noise lie in memory, and the record says so.
"""

from __future__ import annotations

from typing import Any

import torch

from ..data import imagenet, imagenet_shards
from ..data.endless import EndlessLoader
from ..jobs import JobConfig, Made, Metric, Preset, Workload, declare, widened
from ..jobs.workload import Values
from ..models import ResNet50
from .configurations import configuration
from .sources import find_data

__all__ = ["Images"]

_POOL = 2  # batches made beforehand, where the user has no images
_SIZE, _SMALL = 224, 64  # pixels; up to the second, the first convolution keeps the resolution
_TBD = configuration("default", "imagenet-resnet50")


class Images:
    """Images `[N, 3, S, S]` and classes `[N]` without an end; of files in the order in which a loader has them."""

    def __init__(self, config: JobConfig, options: Values, train: bool = True) -> None:
        self.sizes: Values = {}
        self._loader: EndlessLoader | None = None
        self._layout = torch.channels_last if options["enable_nhwc"] else torch.contiguous_format
        if _images_under(config):
            keys = ("num_classes", "image_size", "num_data_workers")
            found = find_data(_TBD.changed({key: options[key] for key in keys}), config.dataroot)
            part = "train" if train else "valid"
            workers = options["num_data_workers"] if train else 0
            self.record: Values = {**found.record[part], "source": found.source}
            self._loader = EndlessLoader(
                getattr(found, part),
                config.batch_size,
                workers,
                config.data_seed,
                pin_memory=config.device != "cpu",
            )
            return
        size, seed = options["image_size"] or _SIZE, config.data_seed + (not train)
        pool = imagenet.pool("synthetic", None, config.batch_size, _POOL, size, seed=seed)
        self.record = pool.origin.record()
        self._pool = [(images, labels % options["num_classes"]) for images, labels in pool.batches]

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        """Return the next batch."""
        images, labels = self._pool[i % _POOL] if self._loader is None else next(self._loader)
        return images.contiguous(memory_format=self._layout), labels

    def close(self) -> None:
        """End the loader."""
        if self._loader is not None:
            self._loader.close()


def _images_under(config: JobConfig) -> bool:
    """True if the user has images there, and they are wanted."""
    if config.data == "synthetic" or (config.dataroot and imagenet_shards.find(config.dataroot)):
        return config.data != "synthetic"
    return imagenet.find(config.data, config.dataroot) is not None


def model(options: Values, hyper: Values) -> torch.nn.Module:
    small = (options["image_size"] or _SIZE) <= _SMALL
    made = ResNet50(options["num_classes"], options["width"], small=small)
    return made.to(memory_format=torch.channels_last) if options["enable_nhwc"] else made  # type: ignore[call-overload]


def loss(model: Any, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(widened(model(images)), classes)


def accuracy(model: Any, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return (model(images).argmax(-1) == classes).float().mean()


_QUICK = {"width": _TBD.quick().width, "image_size": _SMALL, "num_data_workers": 0}
declare(
    Workload(
        name="imagenet-resnet50",
        description="ResNet-50 on ImageNet, SGD, as TBD trains it",
        unit="images",
        options={
            "width": _TBD.width, "image_size": 0, "num_classes": _TBD.num_classes,
            "num_data_workers": _TBD.num_data_workers, "enable_nhwc": False,
        },
        model=model,
        data=Images,
        loss=loss,
        held_out=lambda config, options: Images(config, options, train=False),
        metric=Metric("accuracy", accuracy, batches=4),
        optimizer=Made("SGD", {"lr": "lr", "momentum": "momentum", "weight_decay": "weight_decay"}),
        hyper={"lr": _TBD.peak_lr, "momentum": _TBD.momentum, "weight_decay": _TBD.weight_decay},
        presets={
            "quick": Preset(3, 8, batch_size=8, plan=(1, 2), budget_s=15.0, options=_QUICK),
            "default": Preset(3, 4, batch_size=32, plan=(1, 2), budget_s=50.0, cuda={"iters_per_epoch": 50}),
            "paper": Preset(3, 500, batch_size=32, repeats=3, max_num_Bs=4),
        },
    )
)  # fmt: skip
