# SPDX-License-Identifier: MIT
"""Jobs on the files of ImageNet: TBD's ResNet-50, and data loading without training.

`imagenet-resnet50` is the configuration of that name as a workload, through its loader where there are images. Without
images under the dataroot, batches of uniform noise lie in memory, and the record says so.

`loader` reads, decodes, cuts, mirrors and normalises images, and sends them to the device: torchvision's ImageFolder
and torch's DataLoader with `workers` processes, which have begun when setup ends. Each batch is waited for on the
device. Without a folder of the user's own, `images` JPEG files are generated and kept in the cache.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from .._lazy import torch
from .._seeds import seed_all
from ..data import imagenet, imagenet_shards, photographs
from ..data.batches import EndlessLoader, Loaded, Pooled
from ..errors import InvalidArgument
from ._job import Job, JobConfig, register
from .declared_job import accuracy, classified, declare
from .workload import Card, Made, Metric, Preset, Values, Workload, models

_POOL = 2  # batches made beforehand, where the user has no images
_SIZE, _SMALL = 224, 64  # pixels; up to the second, the first convolution keeps the resolution


def images(config: JobConfig, options: Values, train: bool = True) -> Pooled | Loaded:
    """Images `[N, 3, S, S]` and classes `[N]` without an end; of files in the order in which a loader has them."""
    layout = torch.channels_last if options["enable_nhwc"] else torch.contiguous_format
    size = options["image_size"] or _SIZE
    found = None if config.data == "synthetic" else _files(config, size, train)
    if found is None:
        seed = config.data_seed + (not train)
        pool = imagenet.pool("synthetic", None, config.batch_size, _POOL, size, seed=seed)
        made = [(x.contiguous(memory_format=layout), y % options["num_classes"]) for x, y in pool.batches]
        return Pooled(made, pool.origin.record())
    dataset, origin = found
    if len(dataset.classes) > options["num_classes"]:
        raise InvalidArgument(
            f"num_classes is {options['num_classes']}, and the images have {len(dataset.classes)} classes"
        )
    workers = options["num_data_workers"] if train else 0
    loader = EndlessLoader(dataset, config.batch_size, workers, config.data_seed, pin_memory=config.device != "cpu")
    record = {**origin.record(), "classes": len(dataset.classes)}
    return Loaded(loader, record, lambda batch: (batch[0].contiguous(memory_format=layout), batch[1]))


def _files(config: JobConfig, size: int, train: bool) -> tuple[Any, Any] | None:
    """Return (augmented images of the user's shards or folders, where they are from); None without any."""
    transform = imagenet.augmented(size, normalized=True)
    if shards := imagenet_shards.find(config.dataroot, "train" if train else "validation"):
        dataset = imagenet_shards.ShardedImages(shards, transform)
        return dataset, imagenet_shards.origin_of(dataset, shards)
    root = imagenet.find(config.data, config.dataroot)
    if root is None:
        return None
    place = root if train else imagenet.beside(root)
    dataset = imagenet.folder(place, transform)
    return dataset, imagenet.origin_of(place, dataset)


def resnet50(options: Values, hyper: Values) -> torch.nn.Module:
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
        model=resnet50,
        data=images,
        loss=classified,
        held_out=lambda config, options: images(config, options, train=False),
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
