# SPDX-License-Identifier: MIT
"""Jobs that recommend.

`recom` is neural collaborative filtering on MovieLens-20M: NeuMF, cross-entropy on rated items and 4 unrated ones for
each. An interaction is one sample: a user, an item, and 1 or 0 for rated or not. Samples are drawn on the device.

`dcnv2` is MLPerf's DLRM with crosses of low rank: bags of many values in each field, Adagrad, clicks. The clicks are
drawn from a planted model: a product of two numbers and a weight for each value of a field.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from .._lazy import torch
from ..data import ratings
from ..data.batches import BatchesInTurn
from ..errors import InvalidArgument
from ._job import JobConfig
from .declared_job import declare
from .workload import HELD_OUT, Card, Made, Metric, Preset, Values, Workload, models, numbers_in, sizes

_HELD_OUT = 1 << 16  # added to the seed of draws that are not trained on


def neumf(options: Values, hyper: Values) -> torch.nn.Module:
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


def neumf_loss(model: Any, users: torch.Tensor, items: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
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
        model=neumf,
        data=interactions,
        loss=neumf_loss,
        held_out=lambda config, options: interactions(config, options, _HELD_OUT),
        metric=Metric("loss_of_fresh_draws", neumf_loss, "less", batches=4),
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


_NUMBERS = 13
_FEWEST = 256  # samples of a held-out batch: without a click among them there is no AUC
_LONGEST = 10  # values in a field at most


def fields(options: Values) -> list[tuple[int, int]]:
    """(Rows of the table, values of a sample) of each field: few long tables, most of one value."""
    rows, count = options["rows"], options["tables"]
    return [(int(3 + rows / (i + 1)), 1 + (i * i * 7) % _LONGEST * (i % 3 == 1)) for i in range(count)]


def crosses(options: Values, hyper: Values) -> torch.nn.Module:
    rows = [rows for rows, _ in fields(options)]
    return models.Crosses(rows, _bottom(options), numbers_in(options["top"]), options["rank"])


def _bottom(options: Values) -> list[int]:
    return [_NUMBERS, *numbers_in(options["bottom"]), options["size"]]


def clicks(config: JobConfig, options: Values, held_out: int = 0) -> BatchesInTurn:
    """Numbers, clicks `[N]`, and the values of each field."""
    tables = fields(options)
    count = max(config.batch_size, _FEWEST) if held_out else config.batch_size
    planted = [torch.randn(rows, generator=torch.Generator().manual_seed(i)) for i, (rows, _) in enumerate(tables)]

    def draw(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        numbers = torch.randn(count, _NUMBERS, generator=generator)
        values = [(rows * torch.rand(count, k, generator=generator) ** 2).long() for rows, k in tables]
        likes = sum(weight[own].mean(1) for weight, own in zip(planted, values, strict=True))
        chance = (numbers[:, 0] * numbers[:, 1] + likes / 2 - 1).sigmoid()
        return numbers, torch.bernoulli(chance, generator=generator), *values

    return BatchesInTurn.drawn(draw, config.data_seed + held_out, "clicks of a planted model")


def crosses_loss(model: Any, numbers: torch.Tensor, clicked: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(models.widened(model(numbers, *values)), clicked)


def auc(model: Any, numbers: torch.Tensor, clicked: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
    """Chance that a click has a greater logit than what was not clicked."""
    ranks = model(numbers, *values).argsort().argsort().double() + 1
    clicks, others = clicked.double().sum(), (1 - clicked.double()).sum()
    return ((ranks * clicked).sum() - clicks * (clicks + 1) / 2) / (clicks * others)


def crosses_flops(options: Values) -> float:
    width = options["size"] * (options["tables"] + 1)
    both = _bottom(options), [width, *numbers_in(options["top"]), 1]
    products = sum(i * o for widths in both for i, o in itertools.pairwise(widths))
    return 6.0 * (products + 3 * 2 * width * options["rank"])


declare(
    Workload(
        name="dcnv2",
        description="recommendation: embedding bags of very unlike sizes",
        unit="samples",
        options={"tables": 16, "rows": 3000, "size": 16, "rank": 32, "bottom": "64", "top": "128 64"},
        model=crosses,
        data=clicks,
        loss=crosses_loss,
        held_out=lambda config, options: clicks(config, options, HELD_OUT),
        metric=Metric("AUC", auc, "more", {"quick": 0.75, "default": 0.78}, batches=8),
        optimizer=Made("Adagrad", {"lr": "lr"}),
        flops_per_item=crosses_flops,
        hyper={"lr": 0.03},
        presets=sizes(
            (60, 1024), (300, 2048), (300, 65_536),
            tables=26, rows=4_000_000, size=128, rank=512, bottom="512 256", top="1024 1024 512 256",
        ),
        card=Card(
            "recommendation",
            "26 tables of 128, bottom 512-256-128, 3 crosses of rank 512, top 1024-1024-512-256-1",
            source=("wang2021dcn",),
            about=("drawn clicks in place of Criteo's: nobody may hand those on",),
        ),
    )
)  # fmt: skip
