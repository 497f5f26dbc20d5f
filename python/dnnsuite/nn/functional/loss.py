# SPDX-License-Identifier: MIT
"""Losses as functions: B is what dimension 0 of the input says, so they serve an array and any part of it."""

from __future__ import annotations

import torch

from ... import ops
from ...errors import InvalidArgument
from .._precision import computable


def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Cross-entropy of logits `[B, N, C]` against class indices `[B, N]`: `[B]`, or `[B, N]` with `reduction="none"`.

    Each model's mean is over its own samples that are not `ignore_index`; a model with none gets NaN, as in torch. More
    dimensions follow the class as in torch: `[B, N, C, d1, ...]` with targets `[B, N, d1, ...]`. `weight` is `[C]`.
    """
    if reduction not in ("mean", "sum", "none"):
        raise InvalidArgument(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    if logits.dim() < 3:
        raise InvalidArgument(f"logits of B models are [B, N, C], got {list(logits.shape)}")
    if logits.dim() > 3:  # class last, as the operator wants it: [B, N, C, *] -> [B, N, *, C]
        logits = logits.movedim(2, -1)
    shape = target.shape
    if shape != logits.shape[:-1]:
        raise InvalidArgument(
            f"logits {list(logits.shape)} (class last) want class indices {list(logits.shape[:-1])}; got {list(shape)}"
        )
    logits, target = logits.flatten(1, -2), target.flatten(1)
    if weight is None:
        loss = ops.cross_entropy(computable(logits), target, ignore_index, label_smoothing, reduction)
    else:
        loss = _weighted(logits, target, weight, ignore_index, reduction, label_smoothing)
    return loss.view(shape) if reduction == "none" else loss


def _weighted(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> torch.Tensor:
    """Class weights are rare: torch's own loss over all rows, then each model's weighted mean."""
    rows = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1),
        target.flatten(),
        weight,
        ignore_index=ignore_index,
        reduction="none",
        label_smoothing=label_smoothing,
    ).view(target.shape)
    if reduction == "none":
        return rows
    if reduction == "sum":
        return rows.sum(1)
    counted = target != ignore_index
    return rows.sum(1) / (weight[target.masked_fill(~counted, 0)] * counted).sum(1)
