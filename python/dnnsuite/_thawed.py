# SPDX-License-Identifier: MIT
"""Searches through all objects of a process: those that `gc.freeze` hides are looked through, too; and times without
the searches that the garbage collector begins by itself."""

import gc
import threading
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


_lock = threading.Lock()
_waiting: list[bool] = []  # an item for each that lets the collector wait: True for one that has to set it going


@contextmanager
def put_off() -> Iterator[None]:
    """Context manager: the garbage collector begins nothing by itself, in no thread.

    A walk over a model makes many objects that live shortly. The collector takes those that it meets for ones that
    stay, and soon looks through all of the process's, which takes a third of a second beside torch and transformers.
    """
    with _lock:
        _waiting.append(gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            first = _waiting.pop()
            if _waiting:
                _waiting[0] |= first
            elif first:
                gc.enable()
