# SPDX-License-Identifier: MIT
"""Linear and bilinear layers and embedding tables of B models."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import torch

from .. import ops
from ..errors import InvalidArgument
from . import functional
from ._parametric import Parametric
from .array_module import check_models


class Linear(Parametric):
    """`torch.nn.Linear` for B models: `[B, *, in_features]` to `[B, *, out_features]`.

    `weight` is `[B, out_features, in_features]`, `bias` `[B, out_features]`.

    >>> import torch
    >>> from dnnsuite import nn
    >>> layer = nn.Linear(784, 10, B=3)
    >>> layer.weight.shape, layer(torch.zeros(3, 32, 784)).shape
    (torch.Size([3, 10, 784]), torch.Size([3, 32, 10]))
    """

    arguments = ("in_features", "out_features", "bias")

    compute_dtype: torch.dtype | None = None  # of products, if not that of the parameters: `nn.compute_dtype`
    activations = frozenset({"relu", "gelu"})

    def shape_of_result(self, x: torch.Tensor) -> torch.Size:
        return torch.Size((*x.shape[:-1], self.out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activated(x)

    def activated(self, x: torch.Tensor, activation: str = "none", slope: float = 0.0) -> torch.Tensor:
        """Compute `activation(self(x))`: one kernel with ReLU; with GELU the bias and the activation are one pass."""
        check_models(x, self.B, "Linear")
        y = ops.linear(x, self.weight, self.bias, activation, self.compute_dtype)
        return y if self.compute_dtype is None else y.to(x.dtype)


class Bilinear(Parametric):
    """`torch.nn.Bilinear` for B models: `[B, *, I1]` and `[B, *, I2]` to `[B, *, O]`; `weight` is `[B, O, I1, I2]`."""

    arguments = ("in1_features", "in2_features", "out_features", "bias")

    def forward(self, input1: torch.Tensor, input2: torch.Tensor) -> torch.Tensor:
        check_models(input1, self.B, "Bilinear")
        return functional.bilinear(input1, input2, self.weight, self.bias)


class Table(Parametric):
    """Base of Embedding and EmbeddingBag: `weight` `[B, V, D]`, and torch's options for it."""

    arguments: ClassVar[tuple[str, ...]] = (
        "num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse",
    )  # fmt: skip

    @classmethod
    def from_pretrained(cls, embeddings: torch.Tensor, freeze: bool = True, *args: Any, **kwargs: Any) -> Any:
        """Make a layer from existing tables: an array from `[B, V, D]`, torch's layer from `[V, D]`, with the arguments
        of torch's `from_pretrained`."""
        torchs: Any = cls.torch_class
        if embeddings.dim() == 2:
            return torchs.from_pretrained(embeddings, freeze, *args, **kwargs)
        if embeddings.dim() != 3:
            raise InvalidArgument(f"from_pretrained takes tables [B, V, D], got {list(embeddings.shape)}")
        given = inspect.signature(torchs.from_pretrained).bind(embeddings, freeze, *args, **kwargs).arguments
        rules = {name: value for name, value in given.items() if name not in ("embeddings", "freeze")}
        rows, columns = embeddings.shape[1:]
        layer = cls(num_embeddings=rows, embedding_dim=columns, device="meta", B=len(embeddings), **rules)
        layer.weight = torch.nn.Parameter(embeddings.detach(), requires_grad=not freeze)
        return layer


class Embedding(Table):
    """`torch.nn.Embedding` for B models: indices `[B, *]` to `[B, *, embedding_dim]`, `weight` `[B, V, D]`.

    `padding_idx` is the same row in every model; it starts at zero and gets no gradient. Gradients are dense even with
    `sparse`, because the optimizers of arrays accept no others, but only the rows that were used are computed.

    >>> import torch
    >>> from dnnsuite import nn
    >>> nn.Embedding(1000, 16, B=3)(torch.zeros(3, 8, dtype=torch.long)).shape
    torch.Size([3, 8, 16])
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if input.dim() < 1 or input.size(0) != self.B:
            check_models(input, self.B, "Embedding")
        return functional.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq
        )


class EmbeddingBag(Table):
    """`torch.nn.EmbeddingBag` for B models: the sum, mean or maximum of bags of rows of each model's table.

    `input` is `[B, N, L]` (N bags of L rows), or `[B, M]` with `offsets` `[B, N]` at which each model's bags begin;
    `per_sample_weights` (for sums only) has the shape of `input`. The result is `[B, N, D]`.
    """

    arguments = (*Table.arguments, "mode", "include_last_offset")

    def forward(
        self, input: torch.Tensor, offsets: torch.Tensor | None = None, per_sample_weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        check_models(input, self.B, "EmbeddingBag")
        return functional.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            False,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )
