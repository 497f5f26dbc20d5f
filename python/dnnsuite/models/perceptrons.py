# SPDX-License-Identifier: MIT
"""Linear layers and tables: a multi-layer perceptron, a policy and a value (two perceptrons with tanh), a variational
auto-encoder of two layers each way (Kingma and Welling, ICLR 2014), neural matrix factorisation (He et al., Neural
Collaborative Filtering, WWW 2017), and DLRM with crosses of low rank (Wang et al., 2021).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InvalidArgument


class Agent(nn.Module):
    """Map states `[..., 4]` to the log-probabilities of both actions `[..., 2]` and the value of each state `[...]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.policy, self.value = _network(width, 2, 0.01), _network(width, 1, 1.0)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy(states).log_softmax(-1), self.value(states).squeeze(-1)


def _network(width: int, outputs: int, gain: float) -> nn.Sequential:
    layers = [nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, outputs)]
    for layer, own in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, own)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


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

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(x.size(0), -1)
        for layer in self.layers[:-1]:
            x = self.dropout(torch.relu(layer(x)))
        return self.layers[-1](x)


class VAE(nn.Module):
    """Pixels `[N, pixels]` in [0, 1] to their reconstruction and the mean and log variance of the code `[N, latent]`.

    784-400-20-400-784 has 652 824 parameters.
    """

    def __init__(self, pixels: int = 784, hidden: int = 400, latent: int = 20) -> None:
        super().__init__()
        self.encoder = nn.Linear(pixels, hidden)
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.expander = nn.Linear(latent, hidden)
        self.decoder = nn.Linear(hidden, pixels)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encoder(x).relu()
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        deviation = torch.exp(0.5 * log_variance)
        code = mean + torch.randn_like(deviation) * deviation
        return self.decoder(self.expander(code).relu()).sigmoid(), mean, log_variance


def negative_elbo(reconstruction: Tensor, x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return the binary cross-entropy plus the divergence from N(0, 1), summed over the batch, `[]` (their appendix B).

    Args:
        reconstruction, x: pictures `[N, 784]` between 0 and 1.
        mean, log_variance: mean and log-variance of the latent variables, `[N, 20]`.
    """
    entropy = nn.functional.binary_cross_entropy(reconstruction, x, reduction="sum")
    return entropy - 0.5 * torch.sum(1 + log_variance - mean.square() - log_variance.exp())


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

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        product = self.mf_user(users) * self.mf_item(items)
        x = torch.cat((self.mlp_user(users), self.mlp_item(items)), 1)
        for layer in self.mlp:
            x = torch.relu(layer(x))
        return self.final(torch.cat((product, x), 1)).squeeze(1)


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

    def forward(self, numbers: Tensor, *values: Tensor) -> Tensor:
        bags = [table(own) for table, own in zip(self.tables, values, strict=True)]
        first = x = torch.cat([self.bottom(numbers), *bags], -1)
        for low, high in zip(self.low, self.high, strict=True):
            x = first * high(low(x)) + x
        return self.top(x).squeeze(-1)


def _perceptron(widths: Sequence[int]) -> nn.Sequential:
    return nn.Sequential(*(layer for i, o in itertools.pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())))


def widened(x: torch.Tensor) -> torch.Tensor:
    """`x` in float32 or better, for the loss of logits that autocast may have left in half precision."""
    return x if x.dtype == torch.float64 else x.float()
