# SPDX-License-Identifier: MIT
"""Losses between numbers or distributions, one per model: `[B]`. `sample_weight` is explained in `functional.loss`."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from ...errors import InvalidArgument
from .._reduction import align, in_whole_vectors, reduced
from ._own_numbers import takes_own_numbers


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
    `[B]`.
    """
    return F.huber_loss(align(input, target), align(target, input), reduction="none", delta=delta), weight


@reduced("batchmean")
def kl_div(input: Tensor, target: Tensor, log_target: bool = False) -> Tensor:
    """Kullback-Leibler divergence of the target from the distribution with log-probabilities `input`, both
    `[B, N, ...]`. As in torch, 'mean' averages over elements; 'batchmean' averages over samples, which is the
    mathematical definition.
    """
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
