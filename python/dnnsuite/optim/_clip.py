# SPDX-License-Identifier: MIT
"""Clipping of gradients, each model by itself; the names and arguments of torch.nn.utils.

torch's own functions do the same on tensors of arrays, see `dnnsuite.ops.torch_clip`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .. import ops
from ..errors import InvalidArgument
from ..ops.clipping import by_kind, clip_by_norms_, in_memory_order, total_norms
from ._plan import refuse_sparse
from ._values import as_vector, check_range


def get_total_norm(
    tensors: torch.Tensor | Iterable[torch.Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Return the norm `[B]` over all tensors of each model, in their dtype.

    Args:
        tensors: tensors `[B, ...]`, for example the gradients of an array.
        norm_type: order of the norm: a positive number, or infinity.
        error_if_nonfinite: refuse norms that are not finite; the message names the models.
        foreach: ignored; torch chooses between two implementations by it.

    >>> import torch
    >>> from dnnsuite import optim
    >>> optim.get_total_norm([torch.tensor([[3.0, 4.0], [0.0, 1.0]])]).tolist()
    [5.0, 1.0]
    """
    tensors = _listed(tensors)
    if not tensors:
        raise InvalidArgument("there is no gradient, so the number of models is not known")
    norms = total_norms(tensors, norm_type, error_if_nonfinite)
    return norms.to(_result_dtype(tensors))


@torch.no_grad()
def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Clip each model's gradients to a norm, in place, as `torch.nn.utils.clip_grad_norm_` does for one model.

    A model's norm covers all of its gradients together and depends neither on the other models nor on the number of
    threads. Gradients of a model within its norm are not written. `max_grad_norm` of an optimizer does the same
    without writing gradients at all.

    Args:
        parameters: parameters `[B, ...]` of an array.
        max_norm: largest norm, one number or one per model.
        norm_type: order of the norm: a positive number, or infinity.
        error_if_nonfinite: refuse norms that are not finite; the message names the models.
        foreach: ignored; torch chooses between two implementations by it.

    Returns:
        The norms `[B]` before clipping.

    >>> import torch
    >>> from dnnsuite import nn, optim
    >>> array = nn.Linear(1, 1, bias=False, B=2)
    >>> (array(torch.ones(2, 1, 1)) * torch.tensor([3.0, 0.5])[:, None, None]).sum().backward()
    >>> optim.clip_grad_norm_(array.parameters(), 1.0).tolist()
    [3.0, 0.5]
    >>> [round(gradient, 3) for gradient in array.weight.grad.flatten().tolist()]
    [1.0, 0.5]
    """
    grads = _gradients(parameters)
    B = grads[0].size(0)
    limit = as_vector(max_norm, B, "max_norm", grads[0].device)
    check_range("max_norm", limit.nan_to_num(posinf=0.0))
    norms = total_norms(grads, norm_type, error_if_nonfinite)
    clip_by_norms_(grads, limit, norms)
    return norms.to(_result_dtype(grads))


@torch.no_grad()
def clip_grad_value_(
    parameters: torch.Tensor | Iterable[torch.Tensor], clip_value: Any, foreach: bool | None = None
) -> None:
    """Clip each gradient to [-clip_value, clip_value], in place, like `torch.nn.utils.clip_grad_value_`.

    Args:
        parameters: parameters `[B, ...]` of an array.
        clip_value: one number, or one per model.
        foreach: ignored; torch chooses between two implementations by it.
    """
    grads = _gradients(parameters)
    limit = as_vector(clip_value, grads[0].size(0), "clip_value", grads[0].device)
    check_range("clip_value", limit.nan_to_num(posinf=0.0))
    for mine in by_kind(grads):
        ops.clamp_gradients_(mine, limit.to(mine[0].device))


def _listed(tensors: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _gradients(parameters: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    grads = [p.grad for p in _listed(parameters) if p.grad is not None]
    if not grads:
        raise InvalidArgument("no parameter has a gradient, so there is nothing to clip: call backward first")
    refuse_sparse(grads, grads)
    return in_memory_order(grads)


def _result_dtype(grads: list[torch.Tensor]) -> torch.dtype:
    return torch.float64 if any(g.dtype == torch.float64 for g in grads) else torch.float32
