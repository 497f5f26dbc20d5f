# SPDX-License-Identifier: MIT
"""Embedding tables of B models."""

from __future__ import annotations

from typing import Any

import torch

from .. import ops
from ..errors import InvalidArgument
from ._base import ArrayModule, check_models


class Embedding(ArrayModule):
    """`torch.nn.Embedding` for B models: indices `[B, *]` to `[B, *, embedding_dim]`, `weight` `[B, V, D]`.

    `padding_idx` is the same row in every model: it starts at zero and gets no gradient. Raises InvalidArgument for
    `max_norm`, `scale_grad_by_freq` and `sparse`, which change what the backward pass or the forward pass writes.
    """

    torch_class = torch.nn.Embedding

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        B: int,
    ) -> None:
        super().__init__(B)
        refused = {"max_norm": max_norm, "scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}
        for name, value in refused.items():
            if value:
                raise InvalidArgument(
                    f"Embedding(B={B}) has no {name} (got {value!r}); leave it out, or keep this layer per model"
                )
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise InvalidArgument(
                    f"padding_idx must lie within num_embeddings={num_embeddings}, got {padding_idx}"
                )
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.weight = torch.nn.Parameter(
            torch.empty(B, num_embeddings, embedding_dim, device=device, dtype=dtype)
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Standard normal, model by model; the padding row of every model is zero."""
        for index in range(self.B):
            torch.nn.init.normal_(self.weight[index])
        if self.padding_idx is not None:
            self.weight[:, self.padding_idx].zero_()

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        arguments = {
            "num_embeddings": module.num_embeddings,
            "embedding_dim": module.embedding_dim,
            "padding_idx": module.padding_idx,
        }
        if isinstance(module, torch.nn.Embedding):
            arguments |= {
                "max_norm": module.max_norm,
                "scale_grad_by_freq": module.scale_grad_by_freq,
                "sparse": module.sparse,
            }
        return arguments

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        check_models(indices, self.B, "Embedding")
        return ops.embedding(self.weight, indices, -1 if self.padding_idx is None else self.padding_idx)
