# SPDX-License-Identifier: MIT
"""Numbers too small for a normal float count as zero, as long as one asks for it.

A processor takes some hundred cycles for each. They come up in training wherever a model is sure of its answers: a
probability of 1e-38 times a weight is one. Products of matrices with some of them take twice as long.
"""

from __future__ import annotations

from typing import Any

import torch

_DENORMAL = 5e-324  # the smallest double


def flushing() -> bool:
    """Whether this thread's processor takes denormal numbers as zero."""
    return _DENORMAL * 1.0 == 0.0


class Flushed:
    """A `with` block of this thread in which they are zero (where the processor can); after it all is as before."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = flushing()
        if not self._before:
            torch.set_flush_denormal(True)

    def __exit__(self, *error: Any) -> None:
        if not self._before:
            torch.set_flush_denormal(False)
