# SPDX-License-Identifier: MIT
"""Searches through all objects of a process: those that `gc.freeze` hides are looked through, too."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def thawed() -> Iterator[None]:
    """Context manager: let the garbage collector tell of frozen objects, as of those before a fork; freeze again."""
    frozen = gc.get_freeze_count()
    if frozen:
        gc.unfreeze()
    try:
        yield
    finally:
        if frozen:
            gc.freeze()
