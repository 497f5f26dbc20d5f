# SPDX-License-Identifier: MIT
"""Neural matrix factorisation (He et al., Neural Collaborative Filtering, WWW 2017)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

from ..errors import InvalidArgument


class NeuMF(nn.Module):
    """Map users and items `[N]` to the logit of a rating `[N]`: a product of embeddings and a perceptron on others.

    Args:
        users, items: rows of the tables.
        factors: width of the product.
        layers: widths of the perceptron; the first is its input, half from the user and half from the item.
    """

    def __init__(self, users: int, items: int, factors: int = 64, layers: Sequence[int] = (256, 256, 128, 64)):
        super().__init__()
        if not layers or layers[0] % 2:
            raise InvalidArgument(f"layers must begin with an even width, got {list(layers)}")
        self.mf_user = nn.Embedding(users, factors)
        self.mf_item = nn.Embedding(items, factors)
        self.mlp_user = nn.Embedding(users, layers[0] // 2)
        self.mlp_item = nn.Embedding(items, layers[0] // 2)
        self.mlp = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(layers))
        self.final = nn.Linear(layers[-1] + factors, 1)
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Embeddings normal, 0.01; the perceptron by Glorot, the last layer by LeCun; biases as torch leaves them."""
        for table in (self.mf_user, self.mf_item, self.mlp_user, self.mlp_item):
            table.weight.normal_(0.0, 0.01)
        for layer in self.mlp:
            assert isinstance(layer, nn.Linear)
            limit = math.sqrt(6.0 / (layer.in_features + layer.out_features))
            layer.weight.uniform_(-limit, limit)
        limit = math.sqrt(3.0 / self.final.in_features)
        self.final.weight.uniform_(-limit, limit)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        product = self.mf_user(users) * self.mf_item(items)
        x = torch.cat((self.mlp_user(users), self.mlp_item(items)), 1)
        for layer in self.mlp:
            x = torch.relu(layer(x))
        return self.final(torch.cat((product, x), 1)).squeeze(1)
