# SPDX-License-Identifier: MIT
"""Choice between the ways that are quick on a CPU and those that are quick on a GPU.

Results are the same, but for rounding. So a CPU can stand in for a GPU: tests run a GPU's ways on it, against the same
oracles, and count what a step of them dispatches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import Tensor

__all__ = ["cpu_for_gpu", "on_cpu", "on_gpu"]

_standing_in = False


def on_gpu(x: Tensor) -> bool:
    """Return True if the ways of a GPU are to be taken for a tensor: it is on one, or on a CPU that stands in."""
    return x.is_cuda or (_standing_in and x.is_cpu)


def on_cpu(x: Tensor) -> bool:
    """Return True if the ways of a CPU are to be taken for a tensor: it is on one that does not stand in for a GPU."""
    return x.is_cpu and not _standing_in


@contextlib.contextmanager
def cpu_for_gpu() -> Iterator[None]:
    """Let the CPU stand in for a GPU inside the block, in all threads. For tests and for counting operators."""
    global _standing_in
    before, _standing_in = _standing_in, True
    try:
        yield
    finally:
        _standing_in = before
