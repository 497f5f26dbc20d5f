# SPDX-License-Identifier: MIT
"""Ctrl-C while a step runs Python: it is raised when all models have taken the step, not in the middle.

A step that is recorded replaces functions of `math`, values of the user's and the state of torch for its duration, and
some steps are trials that are undone: an interrupt could come between a change and what undoes it. Models of other
shards would not have taken the step, either.
"""

from __future__ import annotations

import signal
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupted_at_the_end() -> Iterator[None]:
    """Context manager: raise the KeyboardInterrupt of a Ctrl-C when the block has ended; a second one at once.

    Handlers that are not Python's own stay, and threads other than the main one get no signals.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    asked: list[int] = []

    def note(number: int, frame: types.FrameType | None) -> None:
        if asked:
            signal.default_int_handler(number, frame)
        asked.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked:
        raise KeyboardInterrupt
