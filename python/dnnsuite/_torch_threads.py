# SPDX-License-Identifier: MIT
"""Number of threads that torch's operators use on a CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["torch_threads"]


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch's operators use `count` CPU threads within the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
