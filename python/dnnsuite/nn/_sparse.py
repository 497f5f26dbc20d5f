# SPDX-License-Identifier: MIT
"""Embedding tables of B models."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import torch

from ..errors import InvalidArgument
from . import functional
from ._parametric import Parametric
from .array_module import check_models


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
