# SPDX-License-Identifier: MIT
"""DCGAN on images of 64 x 64, on one device or on all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from .._seeds import seed_all
from ..data import Origin, imagenet
from ..errors import InvalidArgument
from . import distributed
from ._data_parallel import SpreadJob
from ._job import JobConfig, register

if TYPE_CHECKING:
    import torch

_BATCHES = 8  # in the pool
_REAL, _FAKE = 1.0, 0.0
_DEFAULTS = {
    "batch_size": 128,
    "repeat": 50,
    "number": 10,
    "imageSize": 64,
    "nz": 100,
    "ngf": 64,
    "ndf": 64,
    "lr": 2e-4,
    "beta1": 0.5,
    "workers": 8,
}


@register("dcgan")
class DCGAN(SpreadJob):
    """Two Adams (0.0002, β₁ 0.5) on binary cross-entropy; discriminator first, then generator, in each step.

    Batches come from a pool made in setup: no loader is measured. The loss is the discriminator's; `metrics` has its
    two parts and the generator's, by the original's names.
    """

    description = "DCGAN, width 64, images of 64 x 64"
    unit = "images"
    defaults: ClassVar = _DEFAULTS
    smoke: ClassVar = {"batch_size": 4, "repeat": 12, "number": 1, "workers": 1}

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        if self.options["imageSize"] != 64:
            raise InvalidArgument(f"imageSize {self.options['imageSize']}: the layers of DCGAN are for images of 64")

    def setup(self) -> None:
        import torch

        from ..models import Discriminator, Generator

        config, options = self.config, self.options
        distributed.join(self.place, self.device)
        pool = imagenet.pool(
            config.data,
            config.dataroot,
            config.batch_size,
            _BATCHES,
            options["imageSize"],
            seed=config.data_seed,
            workers=options["workers"],
            rank=self.place.rank,
            world_size=self.place.world_size,
        )
        self._origin = pool.origin
        self._pool: Iterator[torch.Tensor] = itertools.cycle([self._prepared(*each) for each in pool.batches])
        seed_all(config.seed)
        self.generator = Generator(options["nz"], options["ngf"]).to(self.device)
        self.discriminator = Discriminator(options["ndf"]).to(self.device)
        self.model = torch.nn.ModuleList([self.generator, self.discriminator])
        if self.place.rank:
            seed_all(config.seed + self.place.rank)  # every process has its own noise
        if self.device.type == "cuda":
            torch.backends.cudnn.benchmark = True
        self._generate, self._judge = (
            distributed.parallel(part, self.place, self.device) for part in (self.generator, self.discriminator)
        )
        self._optimizers = [
            torch.optim.Adam(part.parameters(), lr=options["lr"], betas=(options["beta1"], 0.999))
            for part in (self.generator, self.discriminator)
        ]
        self._errors: dict[str, torch.Tensor] = {}

    def _prepared(self, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return images.to(self.device) * 2 - 1

    def with_loader(self) -> Origin:
        loader, origin = self.image_stream(self.options["imageSize"])
        self._pool = (self._prepared(*batch) for batch in loader)
        return origin

    def batch(self) -> torch.Tensor:
        """Images `[N, 3, 64, 64]` in [-1, 1]."""
        return next(self._pool)

    def train(self, batch: torch.Tensor) -> torch.Tensor:
        import torch

        generator, discriminator = self._optimizers
        discriminator.zero_grad()
        real = self._error(batch, _REAL)
        self.backward(real)
        noise = torch.randn(len(batch), self.options["nz"], 1, 1, device=self.device)
        with self.autocast():
            fake = self._generate(noise)
        caught = self._error(fake.detach(), _FAKE)
        self.backward(caught)
        self.advance(discriminator)
        generator.zero_grad()
        passed = self._error(fake, _REAL)
        self.backward(passed)
        self.advance(generator)
        self._errors = {"errD_real": real.detach(), "errG_fake": caught.detach(), "errG": passed.detach()}
        return real + caught

    def _error(self, images: torch.Tensor, label: float) -> torch.Tensor:
        """Cross-entropy of what the discriminator says with `label`."""
        import torch

        with self.autocast():
            logits = self._judge(images)
        probabilities = logits.float().sigmoid()
        return torch.nn.functional.binary_cross_entropy(probabilities, torch.full_like(probabilities, label))

    def metrics(self) -> dict[str, float]:
        return {name: float(value) for name, value in self._errors.items()}

    def provenance(self) -> dict[str, Any]:
        options = self.options
        return {
            "data": self._origin.record(),
            "model": {name: options[name] for name in ("imageSize", "nz", "ngf", "ndf")},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": f"two Adams, lr {options['lr']}, beta1 {options['beta1']}",
            "processes": self.place.world_size,
        }


@register("dcgan_all")
class DCGANOnAll(DCGAN):
    """One process per device (`batch_size` images each), gradients averaged between them; alone, it is `dcgan`."""

    description = "DCGAN on every device of the machine"
    scope, distributed = "all", True
