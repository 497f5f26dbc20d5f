# SPDX-License-Identifier: MIT
"""One profiler at a time: who holds this process, and what becomes of one that is left open or forked."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable

from ..errors import Unavailable

__all__ = ["acquire", "release"]


class _Slot:
    lock = threading.Lock()
    holder: str | None = None
    close: Callable[[], None] | None = None


def acquire(holder: str, close: Callable[[], None]) -> None:
    """Take the process for the profiler `holder` describes; `close` ends it, should the process end first.

    Raises:
        Unavailable: another profiler of this library, or torch's, is at work; the message names it.
    """
    with _Slot.lock:
        if _Slot.holder is not None:
            raise Unavailable(
                f"a profiler is at work already: {_Slot.holder}",
                remedy="close that one first; one profiler takes several metrics, as metrics='all'",
            )
        _refuse_foreign()
        _Slot.holder, _Slot.close = holder, close


def release() -> None:
    """Give the process back."""
    with _Slot.lock:
        _Slot.holder = _Slot.close = None


def _refuse_foreign() -> None:
    if "torch" not in sys.modules:
        return
    from .._torch import profiler_recording

    if profiler_recording():
        raise Unavailable(
            "torch.profiler (or torch.autograd.profiler) is recording in this process",
            remedy="leave its `with` block first: two recorders would measure each other",
        )


def _at_exit() -> None:
    close, holder = _Slot.close, _Slot.holder
    if close is not None:
        print(f"dnnsuite: the profiler of {holder} was left open; it is closed now", file=sys.stderr)
        close()


def _after_fork() -> None:
    # Instruments belong to the parent: a child must neither use nor release them. It may profile itself.
    _Slot.lock = threading.Lock()
    _Slot.holder = _Slot.close = None


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
