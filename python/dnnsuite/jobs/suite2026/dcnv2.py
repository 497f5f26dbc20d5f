# SPDX-License-Identifier: MIT
"""Recommendation, MLPerf's DLRM with crosses of low rank: bags of many values in each field, Adagrad, clicks.

The clicks are drawn from a planted model: a product of two numbers and a weight for each value of a field.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ...data.batches import BatchesInTurn
from .._job import JobConfig
from ..declared_job import declare, widened
from ..workload import Made, Metric, Preset, Values, Workload

_NUMBERS = 13
_HELD_OUT = 1 << 40  # added to the seed of draws that are not trained on
_FEWEST = 256  # samples of a held-out batch: without a click among them there is no AUC
_LONGEST = 10  # values in a field at most


def fields(options: Values) -> list[tuple[int, int]]:
    """(Rows of the table, values of a sample) of each field: few long tables, most of one value."""
    rows, count = options["rows"], options["tables"]
    return [(int(3 + rows / (i + 1)), 1 + (i * i * 7) % _LONGEST * (i % 3 == 1)) for i in range(count)]


class Crosses(nn.Module):
    """Numbers `[N, 13]` and the values of each field `[N, k]` → logits of a click `[N]`."""

    def __init__(self, options: Values) -> None:
        super().__init__()
        size, tables = options["size"], fields(options)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, size, mode="sum") for rows, _ in tables)
        for table, (rows, _) in zip(self.tables, tables, strict=True):
            nn.init.uniform_(table.get_parameter("weight"), -(rows**-0.5), rows**-0.5)
        self.bottom = _perceptron([_NUMBERS, *_widths(options["bottom"]), size], last=nn.ReLU())
        width = size * (len(tables) + 1)
        self.low = nn.ModuleList(nn.Linear(width, options["rank"], bias=False) for _ in range(3))
        self.high = nn.ModuleList(nn.Linear(options["rank"], width) for _ in range(3))
        self.top = _perceptron([width, *_widths(options["top"]), 1])

    def forward(self, numbers: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        bags = [table(own) for table, own in zip(self.tables, values, strict=True)]
        first = x = torch.cat([self.bottom(numbers), *bags], -1)
        for low, high in zip(self.low, self.high, strict=True):
            x = first * high(low(x)) + x
        return self.top(x).squeeze(-1)


def _widths(text: str) -> list[int]:
    return [int(width) for width in text.split()]


def _perceptron(widths: Sequence[int], last: nn.Module | None = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, o in itertools.pairwise(widths):
        layers += [nn.Linear(i, o), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([last] if last else []))


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
    return nn.functional.binary_cross_entropy_with_logits(widened(model(numbers, *values)), clicked)


def auc(model: Any, numbers: torch.Tensor, clicked: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
    """Chance that a click has a greater logit than what was not clicked."""
    ranks = model(numbers, *values).argsort().argsort().double() + 1
    clicks, others = clicked.double().sum(), (1 - clicked.double()).sum()
    return ((ranks * clicked).sum() - clicks * (clicks + 1) / 2) / (clicks * others)


def flops(options: Values) -> float:
    width = options["size"] * (options["tables"] + 1)
    bottom, top = [_NUMBERS, *_widths(options["bottom"]), options["size"]], [width, *_widths(options["top"]), 1]
    products = sum(i * o for widths in (bottom, top) for i, o in itertools.pairwise(widths))
    return 6.0 * (products + 3 * 2 * width * options["rank"])


_PAPER = {
    "tables": 26, "rows": 4_000_000, "size": 128, "rank": 512, "bottom": "512 256", "top": "1024 1024 512 256",
}  # fmt: skip
declare(
    Workload(
        name="dcnv2",
        description="crosses of low rank over bags of embeddings learn clicks",
        unit="samples",
        options={"tables": 16, "rows": 3000, "size": 16, "rank": 32, "bottom": "64", "top": "128 64"},
        model=lambda options, hyper: Crosses(options),
        data=clicks,
        loss=loss,
        held_out=lambda config, options: clicks(config, options, _HELD_OUT),
        metric=Metric("AUC", auc, "more", {"quick": 0.75, "default": 0.78}, batches=8),
        optimizer=Made("Adagrad", {"lr": "lr"}),
        flops_per_item=flops,
        hyper={"lr": 0.03},
        presets={
            "quick": Preset(3, 60, batch_size=1024, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 300, batch_size=2048, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 300, batch_size=65_536, repeats=3, max_num_Bs=2, options=_PAPER),
        },
    )
)
