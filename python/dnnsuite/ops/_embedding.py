# SPDX-License-Identifier: MIT
"""Embedding with a table per model, and a dense and deterministic gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .library import differentiable, fake, library, tracing
from .shared import beside, is_frozen, is_shared, spread

_embedding = library.embedding.default
_embedding_backward = library.embedding_backward.default


fake("embedding", lambda weight, indices: weight.new_empty((*indices.shape, weight.shape[2])))
fake("embedding_backward", lambda grad, vocabulary: grad.new_empty(grad.shape[0], vocabulary, grad.shape[-1]))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    weight, indices, padding_idx = inputs
    ctx.vocabulary, ctx.padding_idx = weight.shape[1], padding_idx
    ctx.save_for_backward(indices)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    return _embedding_backward(grad, indices, ctx.vocabulary, ctx.padding_idx), None, None


def _composition(weight: Tensor, indices: Tensor, padding_idx: int) -> Tensor:
    models = beside(torch.arange(len(weight), device=weight.device), indices)
    rows = weight[models, indices]
    return torch.where((indices == padding_idx).unsqueeze(-1), rows.detach(), rows) if padding_idx >= 0 else rows


_eager = differentiable(_embedding, _setup, _backward, _composition)


def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1) -> Tensor:
    """Look up rows of each model's table: weight [B, V, D] and indices int64 [B, ...] give [B, ..., D].

    Indices that all models share may be an expanded tensor (stride 0 in dimension 0), which is not copied. Row
    `padding_idx` gets no gradient; -1 means no such row. On a CPU an index outside [0, V) is an error.
    """
    if is_frozen(weight):
        B, wide = len(weight), weight[:1]
        if is_shared(indices):
            return spread(embedding(wide, indices[:1], padding_idx), B)
        return embedding(wide, indices.reshape(1, -1), padding_idx).view(*indices.shape, -1)
    result: Tensor = (_embedding if tracing() else _eager)(weight, indices, padding_idx)
    return result
