# SPDX-License-Identifier: MIT
"""torchvision's image classifiers, in single and in half precision, on one device or on all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from .._seeds import seed_all
from ..data import Origin, imagenet, import_torchvision
from ..errors import InvalidArgument, did_you_mean
from . import distributed
from ._data_parallel import SpreadJob
from ._job import JobConfig, register

if TYPE_CHECKING:
    import torch

    _Batch = tuple[torch.Tensor, torch.Tensor]

_BATCHES = 4  # in the pool
_OPTIONS = {"arch": "resnet101", "lr": 0.1, "workers": 8, "image_size": 224}
# Most CPUs have no fp16 arithmetic: two images of 64 x 64 take ResNet-101 16 s there, 0.5 s in fp32 or bf16. Of two
# images of 32 x 32 the last norm sees two values, whose gradients at the own learning rate often end in NaN.
_HALF_SMOKE = {
    "batch_size": 2,
    "repeat": 5,
    "number": 1,
    "workers": 1,
    "image_size": 32,
    "arch": "resnet18",
    "lr": 0.01,
}


@register("convnet")
class ConvNet(SpreadJob):
    """`arch` of torchvision with random weights, plain gradient descent 0.1, cross-entropy over 1000 classes.

    Batches come from a pool made in setup: no loader is measured, except after `with_loader`.
    """

    description = "ResNet-101, images of 224 x 224"
    unit = "images"
    defaults: ClassVar = {"batch_size": 64, "repeat": 30, "number": 5, **_OPTIONS}
    smoke: ClassVar = {"batch_size": 2, "repeat": 6, "number": 1, "workers": 1, "image_size": 64}

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        if self.options["image_size"] < 1:
            raise InvalidArgument(f"image_size {self.options['image_size']} is below 1")

    def setup(self) -> None:
        import torch

        config, options = self.config, self.options
        distributed.join(self.place, self.device)
        pool = imagenet.pool(
            config.data,
            config.dataroot,
            config.batch_size,
            _BATCHES,
            options["image_size"],
            augment=True,
            seed=config.data_seed,
            workers=options["workers"],
            rank=self.place.rank,
            world_size=self.place.world_size,
        )
        self._origin = pool.origin
        self._pool: Iterator[_Batch] = itertools.cycle([self._prepared(*batch) for batch in pool.batches])
        seed_all(config.seed)
        self.model = _classifier(options["arch"]).to(self.device)
        if self.device.type == "cuda":
            torch.backends.cudnn.benchmark = True
        self._classify = distributed.parallel(self.model, self.place, self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), options["lr"])

    def _prepared(self, images: torch.Tensor, classes: torch.Tensor) -> _Batch:
        import torch

        mean, deviation = (torch.tensor(value).view(3, 1, 1) for value in (imagenet.MEAN, imagenet.DEVIATION))
        return ((images - mean) / deviation).to(self.device), classes.to(self.device)

    def with_loader(self) -> Origin:
        loader, origin = self.image_stream(self.options["image_size"], augment=True)
        self._pool = (self._prepared(*batch) for batch in loader)
        return origin

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalised images `[N, 3, H, W]` and their classes `[N]`."""
        return next(self._pool)

    def train(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        import torch

        with self.autocast():
            scores = self._classify(batch[0])
        loss = torch.nn.functional.cross_entropy(scores.float(), batch[1])
        self.update(loss, self.optimizer)
        return loss

    def provenance(self) -> dict[str, Any]:
        options = self.options
        return {
            "data": self._origin.record(),
            "model": {"arch": options["arch"], "image_size": options["image_size"], "weights": "random"},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": f"SGD, lr {options['lr']}",
            "processes": self.place.world_size,
        }


@register("convnet_fp16")
class HalfConvNet(ConvNet):
    """`convnet` in half precision by torch.amp, with twice the batch."""

    description = "ResNet-101 in half precision"
    default_precision = "fp16"
    defaults: ClassVar = {"batch_size": 128, "repeat": 20, "number": 5, **_OPTIONS}
    smoke: ClassVar = _HALF_SMOKE


@register("convnet_distributed")
class DistributedConvNet(ConvNet):
    """One process per device (`batch_size` images each), gradients averaged between them; alone, it is `convnet`."""

    description = "ResNet-101 on every device of the machine"
    scope, distributed = "all", True


@register("convnet_distributed_fp16")
class HalfDistributedConvNet(DistributedConvNet):
    """`convnet_distributed` in half precision by torch.amp, with twice the batch."""

    description = "ResNet-101 in half precision on every device of the machine"
    default_precision = "fp16"
    defaults: ClassVar = {"batch_size": 128, "repeat": 30, "number": 5, **_OPTIONS}
    smoke: ClassVar = _HALF_SMOKE


def _classifier(arch: str) -> Any:
    models = import_torchvision().models
    if arch not in models.list_models(module=models):
        every = models.list_models(module=models)
        known = ", ".join(name for name in every if name.startswith("resnet"))
        raise InvalidArgument(
            f"arch {arch!r} is no classifier of torchvision{did_you_mean(arch, every)}; there is {known} and more"
        )
    return models.get_model(arch, weights=None)
