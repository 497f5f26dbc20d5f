# SPDX-License-Identifier: MIT
"""Torch's counts of the numbers that go in and out of a weight, by which its initial values are scaled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .lookup import get

__all__ = ["take_over_fan_counts"]

_counts: list[Any] = get("fan counts")


def take_over_fan_counts(part_to_count: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Let torch count those of `part_to_count(weight)`: the weight itself, or of an array's one model's part."""
    for original in _counts:

        @functools.wraps(original)
        def count(tensor: torch.Tensor, original: Any = original) -> Any:
            return original(part_to_count(tensor))

        setattr(torch.nn.init, original.__name__, count)
