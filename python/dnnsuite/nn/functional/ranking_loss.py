# SPDX-License-Identifier: MIT
"""Losses for rankings, margins and alignments, one per model: `[B]`. `sample_weight` is explained in
`functional.loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._reduction import check_models, check_reduction, in_whole_vectors, reduced
from ._own_numbers import takes_own_numbers


@takes_own_numbers("margin")
@reduced()
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0) -> Tensor:
    """Hinge embedding loss, the mean per model: the distance where the target is 1, and `margin` minus the distance (at
    least 0) where it is -1.
    """
    return F.hinge_embedding_loss(input, target, margin, reduction="none")


@reduced()
def soft_margin_loss(input: Tensor, target: Tensor) -> Tensor:
    """Soft margin loss log(1 + exp(-target * input)) of `[B, N, ...]` and targets 1 or -1; mean per model."""
    return in_whole_vectors(lambda x, y: F.soft_margin_loss(x, y, reduction="none"), (input, 0.0), (target, 1.0))


@takes_own_numbers("margin")
@reduced()
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0) -> Tensor:
    """Margin ranking loss: by how much `target * (input1 - input2)` is below `margin`, the mean for each model,
    `[B]`.
    """
    return F.margin_ranking_loss(input1, input2, target, margin, reduction="none")


@takes_own_numbers("margin")
@reduced()
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0) -> Tensor:
    """Cosine embedding loss of two tensors `[B, N, D]` with targets `[B, N]` of 1 or -1; the mean for each model."""
    shape = target.shape
    rows = F.cosine_embedding_loss(
        input1.flatten(0, -2), input2.flatten(0, -2), target.flatten(), margin, reduction="none"
    )
    return rows.view(shape)


@takes_own_numbers("margin", "p", "eps")
@reduced()
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
) -> Tensor:
    """Triplet loss: by how much positives fail to be nearer than negatives by `margin`, `[B, N, D]`; mean per model."""
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction="none")


@takes_own_numbers("margin")
@reduced()
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
) -> Tensor:
    """`triplet_margin_loss` with the caller's distance function, which receives `[N, ...]` of one model at a time."""
    values = [
        F.triplet_margin_with_distance_loss(
            *inputs, distance_function=distance_function, margin=margin, swap=swap, reduction="none"
        )
        for inputs in zip(anchor, positive, negative, strict=True)
    ]
    return torch.stack(values) if values else anchor.new_empty(anchor.shape[:-1])


def _for(log_probs: Tensor, lengths: Tensor) -> Any:
    """Return the lengths as torch takes them beside a GPU's tensors also where a step is recorded: not as a CPU's."""
    return lengths.tolist() if log_probs.is_cuda and not lengths.is_cuda else lengths


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[Any],
    target_lengths: Tensor | Sequence[Any],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification loss, computed by torch model by model: log-probabilities `[B, T, N, C]`,
    targets `[B, N, S]` or `[B, sum of lengths]`, lengths `[B, N]`, or `[N]` (which may be lists) for all models.
    """
    check_reduction(reduction)
    check_models({"log_probs": log_probs, "targets": targets})
    lengths = [torch.as_tensor(given) for given in (input_lengths, target_lengths)]
    if log_probs.dim() == 4:
        lengths = [one.expand(len(log_probs), -1) if one.dim() == 1 else one for one in lengths]
    each = [
        F.ctc_loss(x, y, _for(x, of_inputs), _for(x, of_targets), blank, reduction, zero_infinity)
        for x, y, of_inputs, of_targets in zip(log_probs, targets, *lengths, strict=True)
    ]
    if each:
        return torch.stack(each)
    return log_probs.new_empty((0, log_probs.shape[2]) if reduction == "none" else (0,))
