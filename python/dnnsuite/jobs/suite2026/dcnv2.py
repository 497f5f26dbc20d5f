# SPDX-License-Identifier: MIT
"""Recommendation, MLPerf's DLRM with crosses of low rank: bags of many values in each field, Adagrad, clicks.

The clicks are drawn from a planted model: a product of two numbers and a weight for each value of a field.
"""

from __future__ import annotations

import itertools
from typing import Any

from ..._lazy import torch
from ...data.batches import BatchesInTurn
from .._job import JobConfig
from ..declared_job import declare
from ..workload import HELD_OUT, Card, Made, Metric, Values, Workload, models, numbers_in, sizes

_NUMBERS = 13
_FEWEST = 256  # samples of a held-out batch: without a click among them there is no AUC
_LONGEST = 10  # values in a field at most


def fields(options: Values) -> list[tuple[int, int]]:
    """(Rows of the table, values of a sample) of each field: few long tables, most of one value."""
    rows, count = options["rows"], options["tables"]
    return [(int(3 + rows / (i + 1)), 1 + (i * i * 7) % _LONGEST * (i % 3 == 1)) for i in range(count)]


def model(options: Values, hyper: Values) -> torch.nn.Module:
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


def loss(model: Any, numbers: torch.Tensor, clicked: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(models.widened(model(numbers, *values)), clicked)


def auc(model: Any, numbers: torch.Tensor, clicked: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
    """Chance that a click has a greater logit than what was not clicked."""
    ranks = model(numbers, *values).argsort().argsort().double() + 1
    clicks, others = clicked.double().sum(), (1 - clicked.double()).sum()
    return ((ranks * clicked).sum() - clicks * (clicks + 1) / 2) / (clicks * others)


def flops(options: Values) -> float:
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
        model=model,
        data=clicks,
        loss=loss,
        held_out=lambda config, options: clicks(config, options, HELD_OUT),
        metric=Metric("AUC", auc, "more", {"quick": 0.75, "default": 0.78}, batches=8),
        optimizer=Made("Adagrad", {"lr": "lr"}),
        flops_per_item=flops,
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
