# SPDX-License-Identifier: MIT
"""Flush denormals to zero: numbers below 1.2e-38 in float32.

A processor takes some hundred cycles for each. They arise in training where a model's softmax saturates: a probability
of 1e-38 times a weight is one. A few of them double the time of a matrix product.
"""

from __future__ import annotations

from typing import Any

import torch

_DENORMAL = 5e-324  # the smallest double


def flushing() -> bool:
    """Return True if this thread flushes denormals to zero."""
    return _DENORMAL * 1.0 == 0.0


class Flushed:
    """Context manager: flush denormals to zero on this thread, where the processor can; restores the mode on exit,
    which may be called again."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = True

    def __enter__(self) -> None:
        self._before = flushing()
        if not self._before:
            torch.set_flush_denormal(True)

    def __exit__(self, *error: Any) -> None:
        if not self._before:
            torch.set_flush_denormal(False)
