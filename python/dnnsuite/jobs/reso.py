# SPDX-License-Identifier: MIT
"""A sub-pixel convolution network makes pictures larger."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from .._seeds import seed_all
from ..data import Origin, super_resolution
from ..data.endless import EndlessLoader
from ..data.order import Order
from ..errors import InvalidArgument, Unavailable
from ._plain_job import PlainJob, SeedUnit
from ._workload import JobConfig, register

if TYPE_CHECKING:
    import torch

CROP = 256


@register("reso")
class SuperResolution(PlainJob):
    """ESPCN with Adam and mean squared error, on the luminance of crops of 256 x 256.

    The pictures are decoded by `workers` threads during setup and stay in memory: no loader is measured, except
    after `with_loader`. Options:
    `upscale_factor`, `lr`, `testBatchSize` (pictures whose mean peak signal-to-noise ratio `metrics` has, in dB).
    `no_checks` is the original's (save nothing) and the only behaviour here.
    """

    description = "ESPCN makes pictures twice as large"
    unit = "images"
    seed_unit = SeedUnit("images", 1)
    seed_script = "./super_resolution/subpixel_convolution/pytorch/run.sh"
    defaults: ClassVar = {
        "batch_size": 64,
        "repeat": 50,
        "number": 20,
        "upscale_factor": 2,
        "testBatchSize": 8,
        "workers": 8,
        "lr": 0.1,
        "no_checks": True,
    }
    smoke: ClassVar = {"batch_size": 1, "repeat": 12, "number": 1, "workers": 1}

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        if self.options["testBatchSize"] < 1:
            raise InvalidArgument(f"testBatchSize {self.options['testBatchSize']} is below 1")

    def setup(self) -> None:
        import torch

        from ..models import ESPCN

        config, options = self.config, self.options
        train, test, self._origin = super_resolution.load(
            config.data,
            config.dataroot,
            options["upscale_factor"],
            CROP,
            config.data_seed,
            options["workers"],
        )
        self._train, self._test = (
            [torch.from_numpy(array)[:, None].to(self.device) for array in part] for part in (train, test)
        )
        self._order = Order(len(self._train[0]), config.data_seed)
        self._loader: EndlessLoader | None = None
        seed_all(config.seed)
        self.model = ESPCN(options["upscale_factor"]).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options["lr"])

    def with_loader(self) -> Origin | None:
        config, options = self.config, self.options
        try:
            pictures = super_resolution.Decoding(
                config.data, config.dataroot, options["upscale_factor"], CROP
            )
        except Unavailable:  # noise was asked for: nothing is decoded
            return None
        self._loader = EndlessLoader(pictures, config.batch_size, options["workers"], config.data_seed)
        self._streams.append(self._loader)
        return pictures.origin

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Small pictures `[N, 1, 256/r, 256/r]` and the large ones `[N, 1, 256, 256]`, in [0, 1]."""
        if self._loader is not None:
            small, large = (part.to(self.device).float() / 255 for part in next(self._loader))
            return small, large
        chosen = self._order.take(self.config.batch_size).to(self.device, non_blocking=True)
        low, high = (part[chosen].float() / 255 for part in self._train)
        return low, high

    def train(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        loss = self._loss(*batch)
        self.update(loss, self.optimizer)
        return loss

    def _loss(self, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        import torch

        with self.autocast():
            prediction = self.model(low)
        return torch.nn.functional.mse_loss(prediction.float(), high)

    def metrics(self) -> dict[str, float]:
        import torch

        batches = zip(*(part.split(self.options["testBatchSize"]) for part in self._test), strict=True)
        with torch.no_grad():
            errors = [float(self._loss(low.float() / 255, high.float() / 255)) for low, high in batches]
        return {"psnr": sum(-10 * math.log10(error) for error in errors) / len(errors)}

    def provenance(self) -> dict[str, Any]:
        return {
            "data": self._origin.record(),
            "model": {"upscale_factor": self.options["upscale_factor"], "crop": CROP},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": f"Adam, lr {self.options['lr']}",
        }
