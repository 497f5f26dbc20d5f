# SPDX-License-Identifier: MIT
"""Norms and scaling of each model's gradients, whatever their devices, dtypes and orders in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._gradient import gradient_norms, scale_gradients_
from .memory_order import memory_order


def by_kind(grads: Sequence[Tensor]) -> list[list[Tensor]]:
    """Group gradients by device and dtype, in a fixed order."""
    kinds: dict[Any, list[Tensor]] = {}
    for grad in grads:
        kinds.setdefault((grad.device, grad.dtype), []).append(grad)
    return list(kinds.values())


def in_memory_order(grads: Sequence[Tensor]) -> list[Tensor]:
    """View gradients `[B, ...]` with their dimensions in the order in which they lie in memory, to be written.

    Raises:
        InvalidArgument: for gradients that are not those of one number of models.
    """
    sizes = sorted({g.size(0) if g.dim() else 0 for g in grads})
    if len(sizes) > 1:
        raise InvalidArgument(f"gradients of one array have the same B in dimension 0, got {sizes}")
    return [grad.permute(memory_order(grad)) for grad in grads]


def total_norms(grads: Sequence[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
    """Compute the norm of all of each model's gradients together, float64 `[B]`."""
    if not norm_type > 0:
        raise InvalidArgument(f"norm_type is {norm_type!r}; it must be a positive number, or infinity")
    kinds = by_kind(grads)
    norms = torch.stack([gradient_norms(mine, norm_type).to(grads[0].device) for mine in kinds])
    total = norms[0] if len(kinds) == 1 else torch.linalg.vector_norm(norms, norm_type, dim=0)
    if error_if_nonfinite:
        wrong = [index for index, norm in enumerate(total.isfinite().tolist()) if not norm]
        if wrong:
            raise InvalidArgument(
                f"the gradients of models {wrong} have a norm that is not finite; freeze them, or clip with "
                "error_if_nonfinite=False"
            )
    return total


def clip_factors(limit: Tensor, norms: Tensor, grads: Sequence[Tensor]) -> Tensor:
    """Compute the factors that scale each model's gradients to the norm `limit`, float64 `[B]`; 1 if the norm is no
    larger.

    For float32 gradients they are rounded to float32: zeros among the gradients, as of an adapter padded to a larger
    rank, change the order of a norm's sum and its last bits, which must not reach the parameters.
    """
    factors = (limit / (norms + 1e-6)).clamp(max=1.0)
    return factors if any(g.dtype == torch.float64 for g in grads) else factors.float().double()


def clip_by_norms_(grads: Sequence[Tensor], limit: Any, norms: Tensor) -> None:
    """Scale each model's gradients to the norm `limit`, a number or `[B]`, if its own of `norms` `[B]` is larger."""
    if isinstance(limit, (int, float)):
        most = norms.new_full((), limit, dtype=torch.float64)
    else:
        most = torch.as_tensor(limit, dtype=torch.float64, device=norms.device)
    factor = clip_factors(most, norms.double(), grads).expand(grads[0].size(0)).contiguous()
    for mine in by_kind(in_memory_order(grads)):
        scale_gradients_(mine, factor.to(mine[0].device))
