# SPDX-License-Identifier: MIT
"""Threads of a StepRunner and the thread of its caller: which of them run a step."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable

from .threads import ShardThreads, SubmittedStep


class Dispatch:
    """Hand steps to threads, or run them in the caller's thread: where that is faster, or none may run beside another.

    Args:
        count: number of threads; with one the steps run in the caller's thread, with 0 too, and torch's own threads are
            not limited.
        queue_depth: most steps under way at a time.
        choose: find out whether short steps run faster in the caller's thread.
    """

    def __init__(self, count: int, queue_depth: int, choose: bool) -> None:
        self._count, self._queue_depth = count, queue_depth
        self._trial = CallerTrial() if choose and count > 1 else None
        self.several = count > 1
        self.later = self.several  # a step may begin when its caller has gone on
        self.renew()

    def renew(self) -> None:
        """Take new threads, not started yet. Those before are closed."""
        self.threads = ShardThreads(self._count, self._queue_depth)
        self._stop = weakref.finalize(self, self.threads.stop)
        self._stop.atexit = False  # threads.py waits for them then

    @property
    def here(self) -> bool:
        """True if steps run in the caller's thread though there are several threads."""
        return self.several and not self.later

    def start(self, models: int) -> None:
        """Start the threads, not more than `models`, to which shards have been dealt."""
        self.threads.start(min(self._count, models))

    def choose(self, settle: Callable[[], object], captured: bool, parted: bool) -> None:
        """Choose the thread of the next steps.

        Args:
            settle: waits for all steps before.
            captured: steps are replayed.
            parted: models of one shard go different ways. Each gets a shard then, which is tried anew.
        """
        if self._trial is None:
            return
        if parted:
            self._trial.begin()
        here = self._trial.follow(settle, captured)
        if here == self.later:
            settle()
            self.later = not here

    def submit(self, step: SubmittedStep, captured: bool) -> None:
        """Begin `step`; in the caller's thread, run it. Errors are those of `ShardThreads.submit`."""
        if not self.here:
            self.threads.submit(step)
            return
        begin = time.perf_counter()
        self.threads.run_here(step)
        if captured and self._trial is not None:
            self._trial.took(time.perf_counter() - begin)

    def run_alone(self, step: SubmittedStep) -> None:
        """Run `step` in the caller's thread when those under way have ended. Errors are those of `submit`."""
        self.threads.settle()
        self.threads.run_here(step)

    def close(self) -> None:
        """Finish the steps and end the threads. Errors are those of `ShardThreads.close`."""
        self._stop.detach()
        self.threads.close()


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
        self.begin()

    def begin(self) -> None:
        """Begin anew, with the threads: the steps have changed."""
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
            self.begin()

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
