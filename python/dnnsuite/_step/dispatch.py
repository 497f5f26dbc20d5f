# SPDX-License-Identifier: MIT
"""Choice of the thread that runs a step: those of a StepRunner, or its caller's.

Threads pay only for steps that are longer than handing them over takes, so both ways are timed. A step that may run
Python always runs in the caller's thread, where no other step is under way.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable

from .._ways import Trial
from .threads import ShardThreads, SubmittedStep

_STEPS = 8  # of a block, which is timed as a whole: the threads work on a step while its caller makes the next batch
_BLOCKS = 3  # of each way
_LONGEST_S = 0.002  # a step of more time is worth a thread
_LONG_STEPS = 3  # in a row in the caller's thread, until the threads are tried again
_GAIN = 0.95  # of the threads' time that the caller's thread may take


class Dispatch:
    """Hand steps to threads, or run them in the caller's thread: where that is faster, or none may run beside another.

    Args:
        count: number of threads; with one the steps run in the caller's thread, with 0 too, and torch's own threads are
            not limited.
        queue_depth: most steps under way at a time.
        choose: find out whether short steps run faster in the caller's thread, by the wall time of blocks of replayed
            steps, what the caller does between them included.
        clock: reads seconds.
    """

    def __init__(
        self, count: int, queue_depth: int, choose: bool, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._count, self._queue_depth, self._clock = count, queue_depth, clock
        self.several = count > 1
        self.later = self.several  # a step may begin when its caller has gone on
        self._chooses = choose and self.several
        self._begin()
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

    def _begin(self) -> None:
        """Begin a trial of the caller's thread, with the threads."""
        self._trial = Trial((False, True), timed=_BLOCKS, level=_GAIN)
        self._left, self._begun, self._long = -1, 0.0, 0

    def choose(self, settle: Callable[[], object], captured: bool, parted: bool) -> None:
        """Choose the thread of the next step.

        Args:
            settle: waits for all steps before.
            captured: steps are replayed; others do not count.
            parted: models of one shard go different ways. Each gets a shard then, which is tried anew.
        """
        if not self._chooses:
            return
        if parted:
            self._begin()
        trial = self._trial
        if not captured:
            self._left = -1
        elif not trial.done:
            if self._left <= 0:
                settle()
                self._end_block()
            self._left -= 1
        if trial.now == self.later:
            settle()
            self.later = not trial.now

    def _end_block(self) -> None:
        """Take the time of a block of steps, if there was one, and begin the next."""
        now, trial = self._clock(), self._trial
        if self._left == 0:
            trial.add((now - self._begun) / _STEPS)
            if trial.now and not trial.done and trial.least(False) > _LONGEST_S:
                trial.settle(False)
        self._begun, self._left = now, _STEPS

    def submit(self, step: SubmittedStep, captured: bool) -> None:
        """Begin `step`; in the caller's thread, run it. Errors are those of `ShardThreads.submit`."""
        if not self.here:
            self.threads.submit(step)
            return
        begin = self._clock()
        self.threads.run_here(step)
        if captured:  # a larger batch, or more models, make steps longer
            self._long = self._long + 1 if self._clock() - begin > _LONGEST_S else 0
            if self._long == _LONG_STEPS:
                self._begin()

    def run_alone(self, step: SubmittedStep, spread: bool = False) -> None:
        """Run `step` in the caller's thread when those under way have ended, with operators `spread` over all threads
        or not. Errors are those of `submit`."""
        self.threads.settle()
        self.threads.run_here(step, spread)

    def close(self) -> None:
        """Finish the steps and end the threads. Errors are those of `ShardThreads.close`."""
        self._stop.detach()
        self.threads.close()
