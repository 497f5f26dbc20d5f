# SPDX-License-Identifier: MIT
"""Distances, and losses between numbers, distributions or ranks, one per model: `[B]`. `sample_weight` is explained in
`functional.loss`. Tensors broadcast within each model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import InvalidArgument
from .._reduction import align, check_models, check_reduction, in_whole_vectors, reduced
from ._samples import takes_own_numbers


def _aligned(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """Give both tensors the dimensions of the longer one; missing ones come behind the models."""
    dims = max(x1.dim(), x2.dim())
    one, two = (x.reshape(len(x), *[1] * (dims - x.dim()), *x.shape[1:]) for x in (x1, x2))
    return one, two


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """`torch.nn.functional.cosine_similarity` for B models; `dim` counts the dimensions of one model."""
    one, two = _aligned(x1, x2)
    dims = one.dim() - 1
    if not -dims <= dim < dims:
        raise InvalidArgument(f"cosine_similarity: dim must be within [{-dims}, {dims - 1}], got {dim}")
    return torch.nn.functional.cosine_similarity(one, two, dim + 1 if dim >= 0 else dim, eps)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """`torch.nn.functional.pairwise_distance` for B models: the norm of the difference of each pair of rows."""
    return torch.nn.functional.pairwise_distance(*_aligned(x1, x2), p, eps, keepdim)


@reduced()
def l1_loss(input: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
    """Mean absolute difference of two tensors `[B, N, ...]` for each model, `[B]`; `weight` has the input's shape."""
    return F.l1_loss(align(input, target), align(target, input), reduction="none"), weight


@reduced()
def mse_loss(input: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
    """Mean squared difference of two tensors `[B, N, ...]` for each model, `[B]`; `weight` has the input's shape."""
    return F.mse_loss(align(input, target), align(target, input), reduction="none"), weight


@takes_own_numbers("beta")
@reduced()
def smooth_l1_loss(input: Tensor, target: Tensor, beta: float = 1.0) -> Tensor:
    """Mean of squared differences below `beta` and absolute ones above, joined continuously, for each model, `[B]`."""
    return F.smooth_l1_loss(align(input, target), align(target, input), reduction="none", beta=beta)


@takes_own_numbers("delta")
@reduced()
def huber_loss(input: Tensor, target: Tensor, delta: float = 1.0, weight: Tensor | None = None) -> Any:
    """Mean of half the squared differences below `delta` and `delta` times absolute ones above, for each model,
    `[B]`."""
    return F.huber_loss(align(input, target), align(target, input), reduction="none", delta=delta), weight


@reduced("batchmean")
def kl_div(input: Tensor, target: Tensor, log_target: bool = False) -> Tensor:
    """Kullback-Leibler divergence of the target from the distribution with log-probabilities `input`, both `[B, N,
    ...]`. As in torch, 'mean' averages over elements; 'batchmean' averages over samples, which is the mathematical
    definition."""
    return in_whole_vectors(
        lambda x, y: F.kl_div(x, y, reduction="none", log_target=log_target),
        (align(input, target), 0.0),
        (align(target, input), 1.0),
    )


@takes_own_numbers("eps")
@reduced()
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8
) -> Tensor:
    """Negative log-likelihood of counts under a Poisson distribution, the mean for each model, `[B]`."""
    return in_whole_vectors(
        lambda x, y: F.poisson_nll_loss(x, y, log_input, full, eps=eps, reduction="none"),
        (align(input, target), 1.0),
        (align(target, input), 1.0),
    )


@takes_own_numbers("eps")
@reduced()
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6
) -> Tensor:
    """Negative log-likelihood under normal distributions of variance `var` (`[B, N, ...]` or one number)."""
    if not isinstance(var, Tensor):
        var = input.new_full((), var).expand(input.shape)
    elif var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    if var.dim() != input.dim():
        raise InvalidArgument(f"var {list(var.shape)} must be {list(input.shape)} or broadcast to it")
    return in_whole_vectors(
        lambda x, y, v: F.gaussian_nll_loss(x, y, v, full, eps, reduction="none"),
        (input, 0.0),
        (target, 0.0),
        (var, 1.0),
    )


@takes_own_numbers("margin")
@reduced()
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0) -> Tensor:
    """Hinge embedding loss, the mean per model: the distance where the target is 1, and `margin` minus the distance (at
    least 0) where it is -1."""
    return F.hinge_embedding_loss(input, target, margin, reduction="none")


@reduced()
def soft_margin_loss(input: Tensor, target: Tensor) -> Tensor:
    """Soft margin loss log(1 + exp(-target * input)) of `[B, N, ...]` and targets 1 or -1; mean per model."""
    return in_whole_vectors(lambda x, y: F.soft_margin_loss(x, y, reduction="none"), (input, 0.0), (target, 1.0))


@takes_own_numbers("margin")
@reduced()
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0) -> Tensor:
    """Margin ranking loss: by how much `target * (input1 - input2)` is below `margin`, the mean for each model,
    `[B]`."""
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
    targets `[B, N, S]` or `[B, sum of lengths]`, lengths `[B, N]`, or `[N]` (which may be lists) for all models."""
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
