# SPDX-License-Identifier: MIT
"""Clipping of gradients, each model by itself; the names and arguments of torch.nn.utils."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .. import ops
from ..errors import InvalidArgument
from ._plan import refuse_sparse
from ._values import as_vector, check_range


def get_total_norm(
    tensors: torch.Tensor | Iterable[torch.Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """The norm `[B]` of all of each model's tensors together, which are `[B, ...]`, in their dtype.

    Args:
        norm_type: a positive number, or infinity.
        error_if_nonfinite: refuse norms that are not finite; the message names the models.
        foreach: torch's choice between two ways to compute; there is one here.
    """
    tensors = _listed(tensors)
    if not tensors:
        raise InvalidArgument("there is no gradient, so the number of models is not known")
    norms = _norms(tensors, norm_type, error_if_nonfinite)
    return norms.to(_result_dtype(tensors))


@torch.no_grad()
def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """`torch.nn.utils.clip_grad_norm_` of each model: returns the norms `[B]` before clipping.

    The norm is that of all of a model's gradients together, and `max_norm` is one number or one per model. Gradients of
    a model within its norm are not written. A model's norm and factor depend on neither the other models nor the
    number of threads. `max_grad_norm` of an optimizer does the same without writing gradients at all.
    """
    grads = _gradients(parameters)
    B = grads[0].size(0)
    limit = as_vector(max_norm, B, "max_norm", grads[0].device)
    check_range("max_norm", limit.nan_to_num(posinf=0.0))
    norms = _norms(grads, norm_type, error_if_nonfinite)
    for mine in _by_kind(grads):
        ops.scale_gradients_(mine, (limit / (norms + 1e-6)).clamp(max=1.0).to(mine[0].device))
    return norms.to(_result_dtype(grads))


@torch.no_grad()
def clip_grad_value_(
    parameters: torch.Tensor | Iterable[torch.Tensor], clip_value: Any, foreach: bool | None = None
) -> None:
    """`torch.nn.utils.clip_grad_value_` of each model: `clip_value` is one number or one per model."""
    grads = _gradients(parameters)
    limit = as_vector(clip_value, grads[0].size(0), "clip_value", grads[0].device)
    check_range("clip_value", limit.nan_to_num(posinf=0.0))
    for mine in _by_kind(grads):
        ops.clamp_gradients_(mine, limit.to(mine[0].device))


def _listed(tensors: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _gradients(parameters: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    grads = [p.grad for p in _listed(parameters) if p.grad is not None]
    if not grads:
        raise InvalidArgument("no parameter has a gradient, so there is nothing to clip: call backward first")
    refuse_sparse(grads, grads)
    sizes = sorted({g.size(0) if g.dim() else 0 for g in grads})
    if len(sizes) > 1:
        raise InvalidArgument(f"gradients of one array have the same B in dimension 0, got {sizes}")
    return [_contiguous(g) for g in grads]


def _contiguous(grad: torch.Tensor) -> torch.Tensor:
    """The gradient with its dimensions in the order in which they lie in memory: it is written in place."""
    order = sorted(range(1, grad.dim()), key=lambda i: (-grad.stride()[i], i))
    return grad.permute(0, *order)


def _norms(grads: list[torch.Tensor], norm_type: float, error_if_nonfinite: bool) -> torch.Tensor:
    if not norm_type > 0:
        raise InvalidArgument(f"norm_type is {norm_type!r}; it must be a positive number, or infinity")
    kinds = _by_kind(grads)
    norms = torch.stack([ops.gradient_norms(mine, norm_type).to(grads[0].device) for mine in kinds])
    total = norms[0] if len(kinds) == 1 else torch.linalg.vector_norm(norms, norm_type, dim=0)
    if error_if_nonfinite:
        wrong = [index for index, norm in enumerate(total.isfinite().tolist()) if not norm]
        if wrong:
            raise InvalidArgument(
                f"the gradients of models {wrong} have a norm that is not finite; freeze them, or clip with "
                "error_if_nonfinite=False"
            )
    return total


def _by_kind(grads: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The gradients by device and dtype, in a fixed order."""
    kinds: dict[Any, list[torch.Tensor]] = {}
    for grad in grads:
        kinds.setdefault((grad.device, grad.dtype), []).append(grad)
    return list(kinds.values())


def _result_dtype(grads: list[torch.Tensor]) -> torch.dtype:
    return torch.float64 if any(g.dtype == torch.float64 for g in grads) else torch.float32
