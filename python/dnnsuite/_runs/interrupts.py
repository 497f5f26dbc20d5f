# SPDX-License-Identifier: MIT
"""Signals as exceptions, and places where they have to wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupted", "deferred", "interruptible"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked this process to end. Not an Exception: nothing between may swallow it."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)

    @property
    def exit_code(self) -> int:
        """What a shell reports for a process ended by this signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number


class _State:
    depth = 0  # how many deferred() blocks are open
    pending: int | None = None
    raised = False


def _handle(number: int, frame: FrameType | None) -> None:
    if _State.raised:
        return  # ending already; what puts the machine back must not be cut short
    if _State.depth:
        _State.pending = number
        return
    _State.raised = True
    raise Interrupted(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, SIGINT, SIGTERM and SIGHUP raise :class:`Interrupted`, once; handlers are put back after.

    Does nothing outside the main thread, where Python can set no handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _State.raised, _State.pending = False, None
    before = {number: signal.signal(number, _handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@contextmanager
def deferred() -> Iterator[None]:
    """Inside, a signal waits; it is raised at the end of the outermost block.

    For steps that must not be cut in two: starting a process and noting its id, changing the machine and
    noting what to put back.
    """
    _State.depth += 1
    try:
        yield
    finally:
        _State.depth -= 1
        if _State.depth == 0 and _State.pending is not None and not _State.raised:
            number, _State.pending, _State.raised = _State.pending, None, True
            raise Interrupted(number)
