# SPDX-License-Identifier: MIT
"""DLRM with crosses of low rank (Wang et al., 2021): bags of many values in each field."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn


class Crosses(nn.Module):
    """Map numeric features `[N, F]` and the values of each categorical field `[N, k]` to the logit of a click `[N]`.

    Args:
        rows: values that each field may have.
        bottom: widths of the perceptron of the numbers, the first of which is F, and the last the size of embeddings.
        top: inner widths of the perceptron over all.
        rank: width of the three crosses' inner products.
    """

    def __init__(self, rows: Sequence[int], bottom: Sequence[int], top: Sequence[int], rank: int) -> None:
        super().__init__()
        size = bottom[-1]
        width = size * (len(rows) + 1)
        self.tables = nn.ModuleList(nn.EmbeddingBag(each, size, mode="sum") for each in rows)
        for table, each in zip(self.tables, rows, strict=True):
            nn.init.uniform_(table.get_parameter("weight"), -(each**-0.5), each**-0.5)
        self.bottom = _perceptron(bottom)
        self.low = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(3))
        self.high = nn.ModuleList(nn.Linear(rank, width) for _ in range(3))
        self.top = _perceptron([width, *top, 1])[:-1]

    def forward(self, numbers: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        bags = [table(own) for table, own in zip(self.tables, values, strict=True)]
        first = x = torch.cat([self.bottom(numbers), *bags], -1)
        for low, high in zip(self.low, self.high, strict=True):
            x = first * high(low(x)) + x
        return self.top(x).squeeze(-1)


def _perceptron(widths: Sequence[int]) -> nn.Sequential:
    return nn.Sequential(*(layer for i, o in itertools.pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())))
