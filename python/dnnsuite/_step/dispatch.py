# SPDX-License-Identifier: MIT
"""Threads of a StepRunner and the thread of its caller: which of them run a step."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable

from .caller_trial import CallerTrial
from .threads import ShardThreads, SubmittedStep

__all__ = ["Dispatch"]


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
            parted: models of one shard go different ways. Each gets a shard then, for the threads to divide.
        """
        if self._trial is None:
            return
        if parted:
            self._trial.give_up()
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
