# SPDX-License-Identifier: MIT
"""TBD's ResNet-50 as a workload: the configuration `imagenet-resnet50`, through its loader where there are images.

Without images under the dataroot, batches of uniform noise lie in memory, and the record says so.
"""

from __future__ import annotations

from typing import Any

from .._lazy import torch
from ..data import imagenet, imagenet_shards
from ..data.batches import EndlessLoader
from ..errors import InvalidArgument, Unavailable
from ._job import JobConfig
from .declared_job import accuracy, classified, declare
from .workload import Card, Made, Metric, Preset, Values, Workload, models

_POOL = 2  # batches made beforehand, where the user has no images
_SIZE, _SMALL = 224, 64  # pixels; up to the second, the first convolution keeps the resolution
_VALIDATION = ("val", "valid", "validation", "test")


class Images:
    """Images `[N, 3, S, S]` and classes `[N]` without an end; of files in the order in which a loader has them."""

    def __init__(self, config: JobConfig, options: Values, train: bool = True) -> None:
        self.sizes: Values = {}
        self._loader: EndlessLoader | None = None
        self._layout = torch.channels_last if options["enable_nhwc"] else torch.contiguous_format
        size = options["image_size"] or _SIZE
        found = None if config.data == "synthetic" else _files(config, size, train)
        if found is not None:
            dataset, origin = found
            if len(dataset.classes) > options["num_classes"]:
                raise InvalidArgument(
                    f"num_classes is {options['num_classes']}, and the images have {len(dataset.classes)} classes"
                )
            workers = options["num_data_workers"] if train else 0
            self.record: Values = {**origin.record(), "classes": len(dataset.classes)}
            self._loader = EndlessLoader(
                dataset, config.batch_size, workers, config.data_seed, pin_memory=config.device != "cpu"
            )
            return
        seed = config.data_seed + (not train)
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


def _files(config: JobConfig, size: int, train: bool) -> tuple[Any, Any] | None:
    """Return (augmented images of the user's shards or folders, where they are from); None without any."""
    transform = imagenet.augmented(size, normalized=True)
    if shards := imagenet_shards.find(config.dataroot, "train" if train else "validation"):
        dataset = imagenet_shards.ShardedImages(shards, transform)
        return dataset, imagenet_shards.origin_of(dataset, shards)
    root = imagenet.find(config.data, config.dataroot)
    if root is None:
        return None
    beside = [root.parent / name for name in _VALIDATION]
    place = root if train else next((path for path in beside if path.is_dir()), None)
    if place is None:
        raise Unavailable(
            f"validation images beside {root}", ", ".join(map(str, beside)), "put them there, in a folder per class"
        )
    images = imagenet.folder(place, transform)
    return images, imagenet.origin_of(place, images)


def model(options: Values, hyper: Values) -> torch.nn.Module:
    small = (options["image_size"] or _SIZE) <= _SMALL
    made = models.ResNet50(options["num_classes"], options["width"], small=small)
    return made.to(memory_format=torch.channels_last) if options["enable_nhwc"] else made  # type: ignore[call-overload]


_QUICK = {"width": 8, "image_size": _SMALL, "num_data_workers": 0}
declare(
    Workload(
        name="imagenet-resnet50",
        description="ResNet-50 on ImageNet, SGD, as TBD trains it",
        unit="images",
        options={
            "width": 64, "image_size": 0, "num_classes": 1000, "num_data_workers": 4, "enable_nhwc": False,
        },
        model=model,
        data=Images,
        loss=classified,
        held_out=lambda config, options: Images(config, options, train=False),
        metric=Metric("accuracy", accuracy, batches=4),
        optimizer=Made("SGD", {"lr": "lr", "momentum": "momentum", "weight_decay": "weight_decay"}),
        hyper={"lr": 0.0125, "momentum": 0.9, "weight_decay": 1e-4},  # 0.1 for a batch of 256
        presets={
            "quick": Preset(3, 8, batch_size=8, plan=(1, 2), budget_s=40.0, options=_QUICK),
            "default": Preset(3, 4, batch_size=32, plan=(1, 2), budget_s=95.0, cuda={"iters_per_epoch": 50}),
            "paper": Preset(3, 500, batch_size=32, repeats=3, max_num_Bs=4),
        },
        card=Card(
            "image classification",
            "ResNet-50, 1000 classes",
            source=("he2016",),
            about=(
                "the learning rate is that of the first epochs: a rate is measured, not an accuracy",
                "without images under --dataroot: uniform noise in memory",
            ),
        ),
    )
)  # fmt: skip
