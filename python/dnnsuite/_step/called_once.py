# SPDX-License-Identifier: MIT
"""Loss functions that change a value outside of them, such as a counter in a closure: they are called once in a step.

Python runs the code of several shards one after the other, and each would count. All that a step may change is
therefore copied before Python runs in the first of them. If the code has changed such a value, the step is undone, and
one shard of all models takes it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..errors import InvalidArgument
from .capture import Audit, CapturedStep


class CallOnce(Exception):
    """Raised where code must be called once for all models; the message is the mode of further steps, and empty where
    nobody knows yet whether it changes a value that cannot be put back: no code has run then."""


class OneCall:
    """Watch over the Python code of the steps of several shards.

    Args:
        captured: the steps of the shards.
        trusted: steps of all models have shown that the code moves nothing that cannot be put back.

    Attributes:
        ragged: the batches of the models differ in size, so that code can only run for one after the other.
    """

    def __init__(self, captured: Sequence[CapturedStep], trusted: bool) -> None:
        self._captured, self._trusted, self.ragged = captured, trusted, False
        self._kept: list[Audit] = []  # of all shards
        self._error: CallOnce | None = None
        self._lock = threading.Lock()  # threads that replay take a step in Python where its decisions differ
        around = weakref.WeakMethod(self._around)  # shards hold memory, and are let go with their last step
        for one in captured:
            one.around_python = around

    def begin(self, index: int) -> None:
        """Begin the step of one shard, unless code of another must be called once.

        Raises:
            CallOnce: it must.
        """
        if index == 0:
            self._kept, self._error = [], None
        elif self._error is not None:
            raise self._error

    @contextmanager
    def _around(self, one: CapturedStep) -> Iterator[None]:
        """Context manager: run the code of one shard.

        Raises:
            CallOnce: it must be called once; `undo` takes back what it has changed.
            InvalidArgument: it must, and models of other shards have taken the step.
        """
        if self.ragged:
            yield
            return
        with self._lock:
            first = one.alone and one is self._captured[0]
            found = [captured.keep() for captured in (self._captured if first else [one] if not self._kept else ())]
            kept = [each for each in found if each is not None]
            keeps = len(kept) == len(found) and all(each.keeps_python for each in kept)
            if first:
                if not (keeps or self._trusted):
                    self._error = CallOnce()
                    raise self._error
                self._kept = kept
            yield
            if not one.changed_outside:
                return
            if self._kept and keeps:
                self._error = CallOnce(f"eager: {one.changed_outside}")
                raise self._error
            for each in kept:
                each.undo()
            raise InvalidArgument(
                f"{one.changed_outside}, and is called for each of several shards: give it what changes in the "
                "batch, keep that in an attribute of the models, or leave width out and use one thread"
            )

    def end(self, index: int) -> None:
        """End the step of one shard: the copies are let go with the last, unless `undo` is to come."""
        if index == len(self._captured) - 1 and self._error is None:
            self._kept = []

    def undo(self) -> None:
        """Give tensors and Python values what they had before the step."""
        for one in reversed(self._kept):
            one.undo()
        self._kept = []
