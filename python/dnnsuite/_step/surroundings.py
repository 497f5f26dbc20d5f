# SPDX-License-Identifier: MIT
"""Settings for the time of a step: denormals count as zero, and Ctrl-C is raised at its end.

A processor takes some hundred cycles for each number below 1.2e-38. They arise in training where a model's softmax
saturates: a probability of 1e-38 times a weight is one. A few of them double the time of a matrix product.

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
from typing import Any

import torch

_DENORMAL = 5e-324  # the smallest double


def flushing() -> bool:
    """Return True if this thread flushes denormals to zero."""
    return _DENORMAL * 1.0 == 0.0


class Flushed:
    """Context manager: flush denormals to zero on this thread, where the processor can; restores the mode on exit,
    which may be called again."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = True

    def __enter__(self) -> None:
        self._before = flushing()
        if not self._before:
            torch.set_flush_denormal(True)

    def __exit__(self, *error: Any) -> None:
        if not self._before:
            torch.set_flush_denormal(False)


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
