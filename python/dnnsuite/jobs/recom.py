# SPDX-License-Identifier: MIT
"""Neural collaborative filtering on MovieLens-20M."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .._seeds import seed_all
from ..data import ratings
from ..errors import InvalidArgument
from ._plain_job import PlainJob, SeedUnit
from ._workload import register

if TYPE_CHECKING:
    import torch


@register("recom")
class Recommendation(PlainJob):
    """NeuMF, binary cross-entropy on rated items and 4 unrated ones for each; Adam, 5e-4.

    An interaction is one sample: a user, an item, and 1 or 0 for rated or not. Samples are drawn on the device.
    """

    description = "NeuMF of 64 factors and a perceptron of 256, 256, 128, 64, Adam, on MovieLens-20M"
    unit = "interactions"
    seed_unit = SeedUnit("interactions", 1)
    seed_script = "./recommendation/neural_collaborative_filtering/pytorch/run.sh"
    defaults: ClassVar = {
        "batch_size": 2048,
        "repeat": 25,
        "number": 100,
        "learning_rate": 0.0005,
        "layers": "256 256 128 64",
        "factors": 64,
        "negative_samples": 4,
        "interactions": ratings.ML_20M_INTERACTIONS,  # how many to draw where there is no MovieLens
    }
    smoke: ClassVar = {"repeat": 5, "number": 2, "interactions": 1_000_000}

    def setup(self) -> None:
        import torch

        from ..models.neumf import NeuMF

        options = self.options
        self.data = ratings.load(
            self.config.data, self.config.dataroot, options["interactions"], self.config.data_seed
        )
        self._sampler = ratings.Sampler(
            self.data,
            self.config.batch_size,
            options["negative_samples"],
            self.config.data_seed,
            str(self.device),
        )
        seed_all(self.config.seed)
        layers = _widths(options["layers"])
        self.model = NeuMF(self.data.users, self.data.items, options["factors"], layers).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options["learning_rate"])

    def batch(self) -> ratings.Batch:
        return self._sampler.batch()

    def train(self, batch: ratings.Batch) -> torch.Tensor:
        import torch

        with self.autocast():
            logits = self.model(batch.users, batch.items)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.float(), batch.labels)
        self.update(loss, self.optimizer)
        return loss

    def provenance(self) -> dict[str, Any]:
        return {
            "data": {**self.data.origin.record(), "users": self.data.users, "items": self.data.items},
            "model": {"factors": self.options["factors"], "layers": _widths(self.options["layers"])},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": f"Adam, lr {self.options['learning_rate']}",
        }


def _widths(layers: str | Sequence[int]) -> list[int]:
    """Widths from a list, or from the text that a command line has."""
    try:
        return [int(width) for width in (layers.split() if isinstance(layers, str) else layers)]
    except (TypeError, ValueError):
        raise InvalidArgument(f"layers must be widths such as '256 256 128 64', got {layers!r}") from None
