# SPDX-License-Identifier: MIT
"""Number of threads that torch's operators use on a CPU."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import cache

from ._lazy import torch


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch's operators use `count` CPU threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Held(threading.local):
    """Holders of the current thread to one of torch's threads, and the number it had before."""

    def __init__(self) -> None:
        self.by: weakref.WeakSet[object] = weakref.WeakSet()
        self.before = 0


_held = _Held()
_SOFTLY = 1  # omp_pause_soft: settings stay


@cache
def _end_helpers() -> Callable[[int], int]:
    """Find OpenMP's function that ends the helpers of the thread that calls it; torch's OpenMP is in the global scope.
    Microseconds where there are none, some fifty where there are."""
    try:
        end: Callable[[int], int] = ctypes.CDLL(None).omp_pause_resource_all
    except (AttributeError, OSError, TypeError):  # an OpenMP before 5.0, none, or another system
        return lambda kind: -1
    return end


def end_helpers() -> None:
    """End the helpers of torch's operators in the current thread, which would wait for more work by spinning; the next
    operator starts them again. Nothing where torch is not loaded."""
    if "torch" in sys.modules:
        _end_helpers()(_SOFTLY)


def hold_to_one(holder: object) -> None:
    """Let torch's operators in the current thread use one CPU thread until `holder` lets go.

    While other threads have every core, an operator that divides its work waits for helpers that get none, and they
    keep a core busy for some milliseconds after it, waiting for more: the helpers of an earlier operator end.
    """
    if holder in _held.by:
        return
    if not _held.by:
        _held.before = torch.get_num_threads()
        torch.set_num_threads(1)
        _end_helpers()(_SOFTLY)
    _held.by.add(holder)


def let_go(holder: object) -> None:
    """Give the current thread its number of threads back, once nobody else holds it; nothing if `holder` does not."""
    if holder not in _held.by:
        return
    _held.by.discard(holder)
    if not _held.by and torch.get_num_threads() == 1:  # or another number was set meanwhile, which holds
        torch.set_num_threads(_held.before)


def threads_of_caller() -> int:
    """Return the number of CPU threads of torch's operators in the current thread while nobody holds it to one."""
    return _held.before if _held.by else torch.get_num_threads()
