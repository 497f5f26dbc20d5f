# SPDX-License-Identifier: MIT
"""Neural collaborative filtering on MovieLens-20M: NeuMF, cross-entropy on rated items and 4 unrated ones for each.

An interaction is one sample: a user, an item, and 1 or 0 for rated or not. Samples are drawn on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._lazy import torch
from ..data import ratings
from ..data.batches import BatchesInTurn
from ..errors import InvalidArgument
from ._job import JobConfig
from .declared_job import declare
from .workload import Card, Made, Metric, Preset, Values, Workload, models

_HELD_OUT = 1 << 16  # added to the seed of draws that are not trained on


def model(options: Values, hyper: Values) -> torch.nn.Module:
    return models.NeuMF(options["users"], options["items"], options["factors"], _widths(options["layers"]))


def interactions(config: JobConfig, options: Values, held_out: int = 0) -> BatchesInTurn:
    """Users `[N]`, items `[N]` and labels `[N]`."""
    found = ratings.load(config.data, config.dataroot, options["interactions"], config.data_seed)

    def begin() -> Any:
        sampler = ratings.Sampler(
            found, config.batch_size, options["negative_samples"], config.data_seed + held_out, config.device
        )
        return lambda: tuple(sampler.batch())

    return BatchesInTurn(begin, found.origin.record(), {"users": found.users, "items": found.items})


def loss(model: Any, users: torch.Tensor, items: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(models.widened(model(users, items)), labels)


def _widths(layers: str | Sequence[int]) -> list[int]:
    """Widths from a list, or from the text that a command line has."""
    try:
        return [int(width) for width in (layers.split() if isinstance(layers, str) else layers)]
    except (TypeError, ValueError):
        raise InvalidArgument(f"layers must be widths such as '256 256 128 64', got {layers!r}") from None


_SMALL = {"interactions": 1_000_000}
declare(
    Workload(
        name="recom",
        description="NeuMF of 64 factors and a perceptron of 256, 256, 128, 64, Adam, on MovieLens-20M",
        unit="interactions",
        options={
            "layers": "256 256 128 64", "factors": 64, "negative_samples": 4, "learning_rate": 0.0005,
            "interactions": ratings.ML_20M_INTERACTIONS,  # how many to draw where there is no MovieLens
        },
        model=model,
        data=interactions,
        loss=loss,
        held_out=lambda config, options: interactions(config, options, _HELD_OUT),
        metric=Metric("loss_of_fresh_draws", loss, "less", batches=4),
        optimizer=Made("Adam", {"lr": "learning_rate"}),
        hyper={"learning_rate": 0.0005},
        presets={
            "quick": Preset(3, 8, 2048, plan=(1, 2), budget_s=40.0, observed=(5, 2), options=_SMALL),
            "default": Preset(3, 8, 2048, plan=(1, 2, 4), budget_s=95.0, observed=(25, 100)),
        },
        card=Card(
            "recommendation",
            "NeuMF: factors 64, MLP 256-256-128-64",
            source=("he2017", "harper2015", "mila2019"),
            about=(
                "pairs drawn by the Zipf-Mandelbrot law over tables of MovieLens-20M's size where the file is not "
                "there",
                "the hit rate is not scored: the time is",
            ),
        ),
    )
)  # fmt: skip
