# SPDX-License-Identifier: MIT
"""Tensors that all models share: `[B, ...]` in the memory of one, stride 0 in dimension 0."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Maybe = Tensor | None


def is_shared(x: Tensor) -> bool:
    """Return True if all models have the same memory in `x` `[B, ...]`; False for a single model."""
    return x.dim() > 0 and x.size(0) > 1 and x.stride(0) == 0


def is_frozen(x: Tensor | None) -> bool:
    """Return True for a shared tensor without a gradient, and for None."""
    return x is None or (not x.requires_grad and is_shared(x))


def is_kept(x: Tensor | None) -> bool:
    """Return True for state without a gradient that is held once, also by a single model, and for None."""
    return x is None or (not x.requires_grad and x.dim() > 0 and x.stride(0) == 0 and len(x) > 0)


def beside(vector: Tensor, x: Tensor) -> Tensor:
    """View one number per model, `[B]`, so that it broadcasts over x `[B, ...]`: `[B, 1, ...]`."""
    return vector.view(-1, *[1] * (x.dim() - 1))


def spread(one: Tensor, B: int) -> Tensor:
    """Expand a tensor `[1, ...]` to B models."""
    return one.expand(B, *one.shape[1:])


def once(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Compute `function(x)`; for a shared tensor of one model only."""
    return spread(function(x[:1]), x.size(0)) if is_shared(x) else function(x)


def folded(x: Tensor) -> Tensor:
    """Reshape `[B, N, ...]` to `[1, B * N, ...]`, as the samples of one model."""
    return x.reshape(1, -1, *x.shape[2:])
