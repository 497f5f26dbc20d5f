# SPDX-License-Identifier: MIT
"""Losses between numbers and between distributions, `[B]`; `sample_weight` is that of `functional.loss`."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from ...errors import InvalidArgument
from .._reduction import align, check_reduction, in_whole_vectors, legacy, reduce
from ._own_numbers import takes_own_numbers

_reduce = reduce  # torch calls one of the arguments `reduce`


def _elementwise(plain: Callable[..., Tensor], name: str, what: str) -> Callable[..., Tensor]:
    def loss(
        input: Tensor,
        target: Tensor,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        *,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        reduction = legacy(size_average, reduce, reduction)
        values = plain(align(input, target), align(target, input), reduction="none")
        return _reduce(values, reduction, _product(weight, sample_weight))

    loss.__name__ = loss.__qualname__ = name
    loss.__doc__ = f"{what} of two `[B, N, ...]`: the mean of each model `[B]`; `weight` has the shape of the input."
    return loss


l1_loss = _elementwise(F.l1_loss, "l1_loss", "Absolute differences")
mse_loss = _elementwise(F.mse_loss, "mse_loss", "Squared differences")


@takes_own_numbers("beta")
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
    *,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Squared differences below `beta`, absolute ones above, joined continuously: the mean of each model `[B]`."""
    reduction = legacy(size_average, reduce, reduction)
    values = F.smooth_l1_loss(align(input, target), align(target, input), reduction="none", beta=beta)
    return _reduce(values, reduction, sample_weight)


@takes_own_numbers("delta")
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
    *,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Half the squared differences below `delta`, `delta` times absolute ones above: the mean of each model `[B]`."""
    check_reduction(reduction)
    values = F.huber_loss(align(input, target), align(target, input), reduction="none", delta=delta)
    return _reduce(values, reduction, _product(weight, sample_weight))


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
    *,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Kullback-Leibler divergence of the target from the distribution with log-probabilities input `[B, N, ...]`.
    As in torch, 'mean' is over elements; 'batchmean', over samples, is the mathematical definition.
    """
    reduction = legacy(size_average, reduce, reduction, "batchmean")
    values = in_whole_vectors(
        lambda x, y: F.kl_div(x, y, reduction="none", log_target=log_target),
        (align(input, target), 0.0),
        (align(target, input), 1.0),
    )
    if reduction != "batchmean":
        return _reduce(values, reduction, sample_weight)
    return _reduce(values, "mean", sample_weight, samples=values.shape[1] if values.dim() > 1 else 1)


@takes_own_numbers("eps")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
    *,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Minus the log-likelihood of counts under a Poisson distribution: the mean of each model `[B]`."""
    reduction = legacy(size_average, reduce, reduction)
    values = in_whole_vectors(
        lambda x, y: F.poisson_nll_loss(x, y, log_input, full, eps=eps, reduction="none"),
        (align(input, target), 1.0),
        (align(target, input), 1.0),
    )
    return _reduce(values, reduction, sample_weight)


@takes_own_numbers("eps")
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
    *,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Minus the log-likelihood under normal distributions of variance `var` (`[B, N, ...]` or one number)."""
    check_reduction(reduction)
    if not isinstance(var, Tensor):
        var = input.new_tensor(var).expand(input.shape)
    elif var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    if var.dim() != input.dim():
        raise InvalidArgument(f"var {list(var.shape)} must be {list(input.shape)} or broadcast to it")
    values = in_whole_vectors(
        lambda x, y, v: F.gaussian_nll_loss(x, y, v, full, eps, reduction="none"),
        (input, 0.0),
        (target, 0.0),
        (var, 1.0),
    )
    return _reduce(values, reduction, sample_weight)


def _product(weight: Tensor | None, sample_weight: Tensor | None) -> Tensor | None:
    """Combine torch's `weight` of elements with the weight of samples."""
    if weight is None or sample_weight is None:
        return sample_weight if weight is None else weight
    missing = weight.dim() - sample_weight.dim()
    return weight * sample_weight.view(*sample_weight.shape, *[1] * missing)
