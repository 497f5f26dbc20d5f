# SPDX-License-Identifier: MIT
"""Results that a loss wants in single precision or better."""

from __future__ import annotations

import torch


def widened(x: torch.Tensor) -> torch.Tensor:
    """`x` in float32 or better, for the loss of logits that autocast may have left in half precision."""
    return x if x.dtype == torch.float64 else x.float()
