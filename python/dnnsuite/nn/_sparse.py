# SPDX-License-Identifier: MIT
"""Embedding tables of B models."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import torch

from ..errors import InvalidArgument
from . import functional
from ._parametric import Parametric
from .array_module import check_models

TableT = TypeVar("TableT", bound="Table")


class Table(Parametric):
    """Base of Embedding and EmbeddingBag: `weight` `[B, V, D]`, and torch's options for it."""

    arguments: ClassVar[tuple[str, ...]] = (
        "num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse",
    )  # fmt: skip

    @classmethod
    def _from_tables(cls: type[TableT], tables: torch.Tensor, freeze: bool, **arguments: Any) -> TableT:
        """Make a layer of `tables` `[B, V, D]`, which are not copied."""
        if tables.dim() != 3:
            raise InvalidArgument(f"from_pretrained takes tables [B, V, D], got {list(tables.shape)}")
        rows, columns = tables.shape[1:]
        layer = cls(num_embeddings=rows, embedding_dim=columns, device="meta", B=len(tables), **arguments)
        layer.weight = torch.nn.Parameter(tables.detach(), requires_grad=not freeze)
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

    @classmethod
    def from_pretrained(
        cls,
        embeddings: torch.Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Any:
        """Make a layer from existing tables: an array from `[B, V, D]`, torch's layer from `[V, D]`."""
        rules: dict[str, Any] = {
            "padding_idx": padding_idx,
            "max_norm": max_norm,
            "norm_type": norm_type,
            "scale_grad_by_freq": scale_grad_by_freq,
            "sparse": sparse,
        }
        if embeddings.dim() == 2:
            return torch.nn.Embedding.from_pretrained(embeddings, freeze, **rules)
        return cls._from_tables(embeddings, freeze, **rules)

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

    @classmethod
    def from_pretrained(
        cls,
        embeddings: torch.Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Any:
        """Make a layer from existing tables: an array from `[B, V, D]`, torch's layer from `[V, D]`."""
        rules: dict[str, Any] = {
            "max_norm": max_norm,
            "norm_type": norm_type,
            "scale_grad_by_freq": scale_grad_by_freq,
            "mode": mode,
            "sparse": sparse,
            "include_last_offset": include_last_offset,
            "padding_idx": padding_idx,
        }
        if embeddings.dim() == 2:
            return torch.nn.EmbeddingBag.from_pretrained(embeddings, freeze, **rules)
        return cls._from_tables(embeddings, freeze, **rules)

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
