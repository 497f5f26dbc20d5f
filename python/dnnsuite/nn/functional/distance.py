# SPDX-License-Identifier: MIT
"""Distances and similarities of B models. Tensors broadcast within each model."""

from __future__ import annotations

import torch

from ...errors import InvalidArgument


def _aligned(x1: torch.Tensor, x2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give both tensors the dimensions of the longer one; missing ones come behind the models."""
    dims = max(x1.dim(), x2.dim())
    one, two = (x.reshape(len(x), *[1] * (dims - x.dim()), *x.shape[1:]) for x in (x1, x2))
    return one, two


def cosine_similarity(x1: torch.Tensor, x2: torch.Tensor, dim: int = 1, eps: float = 1e-8) -> torch.Tensor:
    """`torch.nn.functional.cosine_similarity` for B models; `dim` counts the dimensions of one model."""
    one, two = _aligned(x1, x2)
    dims = one.dim() - 1
    if not -dims <= dim < dims:
        raise InvalidArgument(f"cosine_similarity: dim must be within [{-dims}, {dims - 1}], got {dim}")
    return torch.nn.functional.cosine_similarity(one, two, dim + 1 if dim >= 0 else dim, eps)


def pairwise_distance(
    x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> torch.Tensor:
    """`torch.nn.functional.pairwise_distance` for B models: the norm of the difference of each pair of rows."""
    return torch.nn.functional.pairwise_distance(*_aligned(x1, x2), p, eps, keepdim)
