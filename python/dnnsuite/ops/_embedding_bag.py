# SPDX-License-Identifier: MIT
"""Sums and means of bags of an embedding's rows, with a table per model, and a gradient in one piece for all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .library import eager, library
from .shared import is_shared

_SUM, _MEAN = 0, 1  # as torch counts the modes


def _bags(weight: Tensor, indices: Tensor, offsets: Tensor, mean: bool) -> Tensor:
    """Call torch's kernel for each model: one for all would have bits that depend on B."""
    each = zip(weight.unbind(0), indices.unbind(0), offsets.unbind(0), strict=True)
    mode = _MEAN if mean else _SUM
    return torch.stack([torch.embedding_bag(table, own, begins, False, mode)[0] for table, own, begins in each])


def _bag_of(offsets: Tensor, count: int) -> Tensor:
    """Number the bag of each of `count` indices, `[B, count]`."""
    begun = offsets.new_zeros(len(offsets), count + 1).scatter_add_(1, offsets, torch.ones_like(offsets))
    return begun.cumsum(1)[:, :count] - 1


def _sizes(offsets: Tensor, count: int) -> Tensor:
    """Count the rows of each bag, at least 1."""
    ends = torch.cat([offsets[:, 1:], offsets.new_full((len(offsets), 1), count)], 1)
    return (ends - offsets).clamp_(min=1)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    weight, indices, offsets, ctx.mean = inputs
    ctx.vocabulary = weight.shape[1]
    ctx.save_for_backward(indices, offsets)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    indices, offsets = ctx.saved_tensors
    count, known = indices.shape[1], offsets[:1] if is_shared(offsets) else offsets
    if ctx.mean:
        grad = grad / _sizes(known, count).unsqueeze(-1).to(grad.dtype)
    bag = _bag_of(known, count).expand(len(grad), count)
    rows = library.embedding.default(grad.contiguous(), bag, -1)
    return library.embedding_backward.default(rows, indices, ctx.vocabulary, -1), None, None, None


def _composition(weight: Tensor, indices: Tensor, offsets: Tensor, mean: bool) -> Tensor:
    models = torch.arange(len(weight), device=weight.device).unsqueeze(1)
    rows, bag = weight[models, indices], _bag_of(offsets, indices.shape[1])
    empty = weight.new_zeros(*offsets.shape, weight.shape[2])
    found = empty.index_put((models, bag), rows, accumulate=True)
    return found / _sizes(offsets, indices.shape[1]).unsqueeze(-1).to(found.dtype) if mean else found


_eager = eager(_bags, _setup, _backward, _composition)


def embedding_bags(weight: Tensor, indices: Tensor, offsets: Tensor, mean: bool) -> Tensor:
    """Sum, or average, bags of rows of each model's table, on a CPU; the result is [B, N, D].

    It exists because torch's own gradient sorts the indices of each model and would copy the gradients of the tables
    together. It cannot be used under `torch.compile`.

    Args:
        weight: the tables, [B, V, D].
        indices: rows, int64 [B, M].
        offsets: position in `indices` where each bag begins, [B, N].
        mean: True averages the rows of a bag.
    """
    result: Tensor = _eager(weight, indices, offsets, mean)
    return result
