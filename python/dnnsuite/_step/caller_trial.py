# SPDX-License-Identifier: MIT
"""Choice between a runner's threads and the thread of its caller, for steps so short that to hand them over counts."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["CallerTrial"]

_STEPS = 8  # of a block, which is timed as a whole: the threads work on a step while its caller makes the next batch
_BLOCKS = 3  # of each way
_LONGEST_S = 0.002  # a step of more time is worth a thread
_LONG_STEPS = 3  # in a row in the caller's thread, until the threads are tried again
_GAIN = 0.95  # of the threads' time that the caller's thread may take


class CallerTrial:
    """Find which is faster by the wall time of blocks of replayed steps, what the caller does between them included.

    Ask `follow` before each step, and give the time of a replayed step in the caller's thread to `took`.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self.here = self._done = False
        self._left, self._begun, self._long = -1, 0.0, 0
        self._seconds: dict[bool, list[float]] = {False: [], True: []}

    def follow(self, settle: Callable[[], object], captured: bool) -> bool:
        """Return True if the next step shall run in the caller's thread.

        Args:
            settle: waits for all steps before it.
            captured: steps are replayed by now; others do not count.
        """
        if self._done:
            return self.here
        if not captured:
            self._left = -1
            return self.here
        if self._left <= 0:
            settle()
            now = self._clock()
            if self._left == 0:
                self._end_block((now - self._begun) / _STEPS)
            self._begun, self._left = now, _STEPS
        self._left -= 1
        return self.here

    def took(self, seconds: float) -> None:
        """Begin anew if steps in the caller's thread have become longer: a larger batch, more models."""
        self._long = self._long + 1 if seconds > _LONGEST_S else 0
        if self._long == _LONG_STEPS:
            self._begin()

    def give_up(self) -> None:
        """Leave all further steps to the threads."""
        self.here, self._done = False, True

    def _end_block(self, seconds: float) -> None:
        mine = self._seconds[self.here]
        mine.append(seconds)
        if len(mine) < _BLOCKS:
            return
        if self.here:
            self._done = True
            self.here = min(mine) < _GAIN * min(self._seconds[False])
        elif min(mine) > _LONGEST_S:
            self._done = True
        else:
            self.here = True
