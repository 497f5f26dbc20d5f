# SPDX-License-Identifier: MIT
"""Products of a user's code with factors that maps, pixels or channels share: gates of channels, scales of layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import ops

FEWEST_NUMBERS = 125_000
"""Numbers of a model below which torch's calls cost less than those of the operator, for four models."""


def scaled_product(a: Any, b: Any) -> Tensor | None:
    """Compute a * b `[B, *]`, if one of them is 1 where the other is not, and both have gradients; else None. torch's
    gradients take four passes."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape == b.shape:
        return None
    x, factors = (a, b) if a.numel() > b.numel() else (b, a)
    if x.numel() < FEWEST_NUMBERS * len(x) or not (x.requires_grad and factors.requires_grad):
        return None
    return ops.scaled(x, factors) if torch.is_grad_enabled() else None
