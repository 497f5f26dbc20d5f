# SPDX-License-Identifier: MIT
"""Window of steps that external tools record (nsys, ncu)."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from .. import _C
from ..errors import Error, Unavailable
from ..host import register_vendor_folders
from . import nvtx
from .instrument import Instrument

_lock = threading.RLock()  # a signal handler may close while its thread opens
_opened: Window | None = None


class Window:
    """Window for external tools: the NVTX range `window` of the domain `dnnsuite`, with the number of the window as
    payload, and cudaProfilerStart and cudaProfilerStop.

    `open` and `close`, or `with`; it may be opened again. Synchronise the device before both, or work of steps outside
    runs inside. One window is open in a process at a time. One that is left open is closed at exit, also after Ctrl-C,
    so that the tool's file is complete; a forked child has none open, and leaves its parent's alone. May be closed by
    another thread.
    """

    def __init__(self) -> None:
        self.count = 0  # windows opened so far
        self.notes: list[str] = []  # what could not be driven, and why
        self._range: int | None = None
        self._cuda = False

    @property
    def is_open(self) -> bool:
        """True if this window is the one that is open."""
        return _opened is self

    def open(self) -> None:
        """Open the window. Raises Error while this or another window is open."""
        global _opened
        with _lock:
            if _opened is not None:
                whose = "this window" if _opened is self else "another window"
                raise Error(f"{whose} is open already: close it first, there is one at a time in a process")
            register_vendor_folders()
            self.notes.clear()
            _opened = self  # before anything is driven: an interrupt from here on leaves it to `close`
            self._cuda = self._drive(_C.cuda_profiler_start)
            self._range = _C.nvtx_start("window", self.count) if nvtx.available() else None
            if self._range is None:
                self.notes.append("no NVTX range: this build was made without NVTX's headers")
            self.count += 1

    def close(self) -> None:
        """Close the window, if it is open."""
        global _opened
        with _lock:
            if _opened is not self:
                return
            running, self._range = self._range, None
            if running is not None:
                _C.nvtx_stop(running)
            driven, self._cuda = self._cuda, False
            if driven:
                self._drive(_C.cuda_profiler_stop)
            _opened = None  # last: what an interrupt cuts short is gone on with at exit

    def _drive(self, call: Any) -> bool:
        """Call CUDA's profiler control; return True if it worked. A failure is a note: NVTX serves CPU tools too."""
        try:
            call()
        except (Unavailable, Error) as error:
            self.notes.append(f"no {call.__name__}: {error}")
            return False
        return True

    def __enter__(self) -> Window:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WindowInstrument(Instrument):
    """Instrument that holds the window of external tools (:class:`Window`) open while one of the profile is.

    On a machine without these tools their absence is no news, so that it has no notes.
    """

    name = "window"

    def __init__(self) -> None:
        self._window = Window()

    def start(self) -> None:
        self._window.open()

    def stop(self) -> None:
        self._window.close()

    def close(self) -> None:
        self._window.close()


def close_at_exit() -> None:
    if _opened is not None:
        _opened.close()


def _forget_in_child() -> None:
    """Forget the window in a forked child: ending it there would end the parent's."""
    global _opened, _lock
    _lock = threading.RLock()
    if _opened is not None:
        _opened._range, _opened._cuda = None, False
    _opened = None


atexit.register(close_at_exit)
os.register_at_fork(after_in_child=_forget_in_child)
