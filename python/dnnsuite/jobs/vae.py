# SPDX-License-Identifier: MIT
"""A variational auto-encoder learns pictures of 28 x 28."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .._seeds import seed_all
from ..data import Origin, mnist
from ..data.endless import EndlessLoader
from ..data.order import Order
from ._plain_job import PlainJob, SeedUnit
from ._workload import register

if TYPE_CHECKING:
    import torch


@register("vae")
class VariationalAutoEncoder(PlainJob):
    """784-400-20-400-784, Adam 0.001, cross-entropy and divergence summed over the batch.

    All pictures are in memory, and a batch is taken from them: no loader is measured, except after `with_loader`.
    `metrics` has the loss per picture of the test part.
    """

    description = "a variational auto-encoder learns MNIST"
    unit = "images"
    seed_unit = SeedUnit("images", 1)
    seed_script = "./variational_auto_encoder/auto_encoding_variational_bayes/pytorch/run.sh"
    defaults: ClassVar = {"batch_size": 128, "repeat": 100, "number": 30}
    smoke: ClassVar = {"repeat": 15, "number": 5}

    def setup(self) -> None:
        import torch

        from ..models import VAE

        config = self.config
        pictures, test = (
            mnist.load(config.data, config.dataroot, config.data_seed, train) for train in (True, False)
        )
        self._origin, self._pictures = pictures.origin, pictures
        self._loader: EndlessLoader | None = None
        self._images, self._test = (_pixels(part).to(self.device) for part in (pictures, test))
        self._order = Order(len(self._images), config.data_seed)
        seed_all(config.seed)
        self.model = VAE().to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def with_loader(self) -> Origin:
        """Pictures one by one as an image and then a tensor, as torchvision's data set has them."""
        self._loader = EndlessLoader(
            mnist.OneByOne(self._pictures), self.config.batch_size, 1, self.config.data_seed
        )
        self._streams.append(self._loader)
        return self._origin

    def batch(self) -> torch.Tensor:
        """Pictures `[N, 784]` in [0, 1]."""
        if self._loader is not None:
            return next(self._loader).to(self.device)
        chosen = self._order.take(self.config.batch_size).to(self.device, non_blocking=True)
        return self._images[chosen].float() / 255

    def train(self, batch: torch.Tensor) -> torch.Tensor:
        loss = self._loss(batch)
        self.update(loss, self.optimizer)
        return loss

    def _loss(self, x: torch.Tensor) -> torch.Tensor:
        from ..models import negative_elbo

        with self.autocast():
            reconstruction, mean, log_variance = self.model(x)
        return negative_elbo(reconstruction.float(), x, mean.float(), log_variance.float())

    def metrics(self) -> dict[str, float]:
        import torch

        parts = self._test.split(self.config.batch_size)
        with torch.no_grad():
            total = sum(float(self._loss(part.float() / 255)) for part in parts)
        return {"test_loss_per_image": total / len(self._test)}

    def provenance(self) -> dict[str, Any]:
        return {
            "data": self._origin.record(),
            "model": {"layers": [784, 400, 20, 400, 784]},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": "Adam, lr 0.001",
        }


def _pixels(pictures: mnist.Pictures) -> torch.Tensor:
    import torch

    return torch.from_numpy(pictures.images.copy()).flatten(1)
