# SPDX-License-Identifier: MIT
"""Tensors that all models share: `[B, ...]` in the memory of one, stride 0 in dimension 0."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

__all__ = ["folded", "is_frozen", "is_kept", "is_shared", "once", "spread"]


def is_shared(x: Tensor) -> bool:
    """Return True if all models have the same memory in `x` `[B, ...]`; with a single model nothing is shared."""
    return x.dim() > 0 and x.size(0) > 1 and x.stride(0) == 0


def is_frozen(x: Tensor | None) -> bool:
    """Return True for a shared tensor through which no gradient goes, and for none at all."""
    return x is None or (not x.requires_grad and is_shared(x))


def is_kept(x: Tensor | None) -> bool:
    """Return True for state that takes no gradient and is held once, also by a single model, and for none at all."""
    return x is None or (not x.requires_grad and x.dim() > 0 and x.stride(0) == 0 and len(x) > 0)


def spread(one: Tensor, B: int) -> Tensor:
    """Show a tensor `[1, ...]` as that of B models."""
    return one.expand(B, *one.shape[1:])


def once(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function(x)`, of a shared tensor computed for one model."""
    return spread(function(x[:1]), x.size(0)) if is_shared(x) else function(x)


def folded(x: Tensor) -> Tensor:
    """Show `[B, N, ...]` as `[1, B * N, ...]`, the samples of one model."""
    return x.reshape(1, -1, *x.shape[2:])
