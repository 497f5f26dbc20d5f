# SPDX-License-Identifier: MIT
"""Signals as exceptions: the first unwinds and cleans up, the second ends the process at once.

A handler written in Python runs in the main thread only, between two of its instructions. Two things follow, and both
are met here: an exception raised while a destructor or a callback runs is swallowed, so waiting loops call
:func:`check`; and a main thread that is stuck in a library never reaches a handler, so a second thread, woken by the
C handler through :func:`signal.set_wakeup_fd`, ends the process.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_PRESS_S = 0.05  # a wrapper that passes Ctrl-C on makes two signals of one


class Interrupted(BaseException):
    """Raised when a signal asks this process to end. Not an Exception: nothing between may swallow it.

    That of Ctrl-C is a KeyboardInterrupt, too.

    Args:
        way_on: sentence on what is kept and how to continue.
    """

    def __new__(cls, number: int, way_on: str = "") -> Interrupted:
        kind = _KeyboardInterrupted if number == signal.SIGINT and cls is Interrupted else cls
        return super().__new__(kind, number, way_on)

    def __init__(self, number: int, way_on: str = "") -> None:
        self.number, self.way_on = number, way_on
        super().__init__(number, way_on)

    @property
    def signal_name(self) -> str:
        """SIGINT, SIGTERM or SIGHUP."""
        return signal.Signals(self.number).name

    def __str__(self) -> str:
        return f"{self.signal_name}: {self.way_on}" if self.way_on else self.signal_name

    @property
    def exit_code(self) -> int:
        """Status that a shell reports for a process ended by this signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number


class _KeyboardInterrupted(Interrupted, KeyboardInterrupt):
    __qualname__ = "Interrupted"


class _Signals:
    """Signals within the outermost :func:`interruptible` block, and the thread that watches for a second one."""

    def __init__(self) -> None:
        self.blocks = 0  # nested interruptible()
        self.held = 0  # nested deferred()
        self.first: int | None = None
        self.handled_s = 0.0  # when the main thread handled it
        self.raised = False
        self.workers: set[int] = set()  # leaders of sessions, to be killed with all that is in them
        self._handlers: dict[signal.Signals, object] = {}
        self._woken: tuple[socket.socket, socket.socket] | None = None
        self._wakeup_before = -1

    def install(self) -> None:
        """Begin to listen; a signal that is ignored, as by nohup or a shell's `&`, stays ignored."""
        self.first, self.raised = None, False
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        self._woken = (reader, writer)
        self._wakeup_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reader,), name="dnnsuite-signals", daemon=True).start()
        heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._handlers = {number: signal.signal(number, self.handle) for number in heard}

    def remove(self) -> None:
        """Put the handlers back."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._wakeup_before)
        if self._woken is not None:
            self._woken[1].close()  # the thread reads the end and goes
            self._woken = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Main thread: raise the first signal, now or at the end of a :func:`deferred` block; end at a second."""
        if self.first is None:
            self.first, self.handled_s = number, time.monotonic()
            _say(f"{signal.Signals(number).name}: cleaning up; once more to end at once")
        elif time.monotonic() - self.handled_s > _SAME_PRESS_S:
            self.end_at_once(number)
        self.raise_if_due()

    def raise_if_due(self) -> None:
        """Raise the signal that has arrived, unless it was raised already or has to wait."""
        if self.first is not None and not self.raised and not self.held:
            self.raised = True
            raise Interrupted(self.first)

    def _watch(self, reader: socket.socket) -> None:
        """Second thread: a second signal ends the process, wherever the main thread is.

        Signals that are read together may be far apart, where the process had no CPU for a while. Then the main
        thread, which handles each when it runs again, ends the process, or the next press does.
        """
        first_s: float | None = None
        with reader:
            while numbers := _received(reader):
                now_s = time.monotonic()
                for number in (each for each in numbers if each in self._handlers):
                    if first_s is None:
                        first_s = now_s
                    elif now_s - first_s > _SAME_PRESS_S:
                        self.end_at_once(number)

    def end_at_once(self, number: int) -> NoReturn:
        """Kill the workers and this process, without any cleaning up."""
        for leader in tuple(self.workers):
            with suppress(OSError):
                os.killpg(leader, signal.SIGKILL)
        _say(f"ended at once by {signal.Signals(number).name}")
        os._exit(128 + number)

    def forget(self) -> None:
        """Forget the parent's workers and its second thread, in a forked child."""
        if self.blocks:
            signal.set_wakeup_fd(-1)
            for number, handler in self._handlers.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)  # type: ignore[arg-type]
        self.blocks = self.held = 0
        self.workers.clear()


_signals = _Signals()
os.register_at_fork(after_in_child=_signals.forget)


def _received(reader: socket.socket) -> bytes:
    try:
        return reader.recv(64)
    except OSError:
        return b""


def _say(text: str) -> None:
    with suppress(OSError):
        os.write(2, f"dnnsuite: {text}\n".encode())


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def interruptible() -> Iterator[None]:
    """Context manager: the first SIGINT, SIGTERM or SIGHUP raises :class:`Interrupted`; a second one ends the process.

    Blocks nest: the outermost installs the handlers and puts them back. Does nothing outside the main thread, where
    Python can set no handler.
    """
    if not _in_main_thread():
        yield
        return
    if not _signals.blocks:
        _signals.install()
    _signals.blocks += 1
    try:
        yield
    finally:
        _signals.blocks -= 1
        if not _signals.blocks:
            _signals.remove()


def check() -> None:
    """Raise :class:`Interrupted` again if one was raised and swallowed, as one raised in a destructor is.

    For loops that wait: code in such a loop has not seen the exception, which would have ended it.
    """
    if _signals.blocks and _signals.first is not None and _in_main_thread():
        _signals.raised = True
        raise Interrupted(_signals.first)


def pending() -> bool:
    """True if a signal has arrived: for a loop inside :func:`deferred` that ends between two of its steps."""
    return bool(_signals.blocks) and _signals.first is not None


@contextmanager
def deferred() -> Iterator[None]:
    """Context manager: a first signal waits; it is raised at the end of the outermost block.

    For steps that must not be cut in two: starting a process and noting its id, changing the machine and
    noting what to put back. Other threads are never interrupted, so there it does nothing.
    """
    if not _in_main_thread():
        yield
        return
    _signals.held += 1
    try:
        yield
    finally:
        _signals.held -= 1
        if _signals.blocks:
            _signals.raise_if_due()


class limited:
    """Context manager: after `seconds` the block ends with the exception that `late` makes; code that catches it gets
    it again each second.

    It reaches Python code of the main thread, in which alone it does anything.
    """

    def __init__(self, seconds: float, late: Callable[[], Exception]) -> None:
        self._seconds, self._late = seconds, late

    def __enter__(self) -> None:
        if _in_main_thread():
            self._began_s, self._timer = time.monotonic(), signal.getitimer(signal.ITIMER_REAL)
            self._handler = signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, self._seconds, 1.0)

    def __exit__(self, *error: object) -> None:
        if _in_main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._handler or signal.SIG_DFL)
            left_s, each_s = self._timer
            if left_s:  # somebody else's timer
                left_s = max(1e-3, left_s - (time.monotonic() - self._began_s))
                signal.setitimer(signal.ITIMER_REAL, left_s, each_s)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        """Raise, but not as the block begins or ends: that would leave the timer behind."""
        own = limited.__enter__.__code__, limited.__exit__.__code__
        while frame is not None:
            if frame.f_code in own:
                return
            frame = frame.f_back
        raise self._late()


def worker_started(leader: int) -> None:
    """Note a process that leads a session of its own: a second signal kills the session."""
    _signals.workers.add(leader)


def worker_ended(leader: int) -> None:
    """Forget a process that has been waited for."""
    _signals.workers.discard(leader)
