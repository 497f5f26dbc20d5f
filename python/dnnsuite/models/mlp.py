# SPDX-License-Identifier: MIT
"""A multi-layer perceptron."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import InvalidArgument


class MLP(torch.nn.Module):
    """Linear layers of the given `sizes` with ReLU and dropout between them: `[N, sizes[0]]` to `[N, sizes[-1]]`.

    Inputs of more dimensions are flattened, as images `[N, 1, 28, 28]` for `sizes[0] = 784`. With `tied`, hidden
    layers of the same shape share one weight, each with its own bias.
    """

    def __init__(self, sizes: Sequence[int] = (64, 128, 128, 10), dropout: float = 0.0, tied: bool = False) -> None:
        super().__init__()
        if len(sizes) < 2:
            raise InvalidArgument(f"an MLP takes two or more sizes, input and output; got {list(sizes)}")
        layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
        if tied:
            first: dict[torch.Size, Any] = {}
            for layer in layers[:-1]:
                layer.weight = first.setdefault(layer.weight.shape, layer.weight)
        self.layers = torch.nn.ModuleList(layers)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view(x.size(0), -1)
        for layer in self.layers[:-1]:
            x = self.dropout(torch.relu(layer(x)))
        return self.layers[-1](x)
