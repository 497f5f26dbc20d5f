# SPDX-License-Identifier: MIT
"""Limit of one profiler at a time in a process: its holder, and clean-up of one that is left open or forked."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable

from ..errors import Unavailable


class OneProfiler:
    """Slot that one profiler holds at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: str | None = None
        self._close: Callable[[], None] | None = None

    def acquire(self, holder: str, close: Callable[[], None]) -> None:
        """Take the slot for the profiler that `holder` describes; `close` ends it if the process ends first.

        Raises:
            Unavailable: another profiler of this library, or torch's, is at work; the message names it.
        """
        with self._lock:
            if self._holder is not None:
                raise Unavailable(
                    f"a profiler is at work already: {self._holder}",
                    remedy="close that one first; one profiler takes several metrics, e.g. metrics='all'",
                )
            _refuse_foreign()
            self._holder, self._close = holder, close

    def release(self) -> None:
        """Release the slot. Idempotent."""
        with self._lock:
            self._holder = self._close = None

    def close_left_open(self) -> None:
        """Close the profiler that still holds the slot, and name it on standard error."""
        close, holder = self._close, self._holder
        if close is not None:
            print(f"dnnsuite: the profiler of {holder} was left open; it is closed now", file=sys.stderr)
            close()

    def forget_parent(self) -> None:
        """Release the slot in a forked child: the instruments are the parent's, and the child may profile itself."""
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._holder = self._close = None


PROCESS = OneProfiler()
"""Slot of this process."""


def _refuse_foreign() -> None:
    if "torch" not in sys.modules:
        return
    from .._torch import profiler_recording

    if profiler_recording():
        raise Unavailable(
            "torch.profiler (or torch.autograd.profiler) is recording in this process",
            remedy="leave its `with` block first: two recorders would measure each other",
        )


atexit.register(PROCESS.close_left_open)
os.register_at_fork(after_in_child=PROCESS.forget_parent)
