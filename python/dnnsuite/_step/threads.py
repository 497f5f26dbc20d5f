# SPDX-License-Identifier: MIT
"""Threads that take shards of an array through training steps, each shard's steps in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .shard import Vectors

RunShard = Callable[[int, tuple[Any, ...], Vectors], torch.Tensor]


class SubmittedStep:
    """One training step of all models, perhaps still under way. `losses()` waits for it."""

    __slots__ = ("_wait", "batch", "left", "parts", "vectors")

    def __init__(self, wait: Callable[[Callable[[], bool]], None], batch: Any, vectors: Vectors, shards: int):
        self._wait, self.batch, self.vectors = wait, batch, vectors
        self.parts: list[torch.Tensor | None] = [None] * shards
        self.left = shards

    def losses(self) -> torch.Tensor:
        """The models' losses of this step, `[B]`."""
        self._wait(lambda: self.left == 0)
        parts = [part for part in self.parts if part is not None]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class ShardThreads:
    """`threads` threads and the steps that are under way, at most `queue_depth` of them.

    A shard's next step waits for nothing but its last. With one thread there is nothing to overlap with: the steps
    run in the caller's, which saves it the hand-over; with none they do too, and torch's own threads are not limited.
    An error ends all, and is raised by every later call.
    """

    def __init__(self, run: RunShard, threads: int, queue_depth: int) -> None:
        self._run, self._threads, self._queue_depth = run, threads, queue_depth
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._pending: deque[SubmittedStep] = deque()
        self._pool: list[threading.Thread] = []
        self._closed = False
        self.deal(0)

    def start(self, workers: int) -> None:
        """Starts `workers` threads; they share the cores evenly."""
        if self._threads <= 1:
            return
        inner = max(1, self._threads // workers)
        mine = torch.get_num_threads()
        for index in range(workers):
            name = f"dnnsuite-step-{index}"
            self._pool.append(threading.Thread(target=self._work, args=(inner,), name=name, daemon=True))
            self._pool[-1].start()
        torch.set_num_threads(mine)

    def deal(self, shards: int) -> None:
        """From now on there are so many shards. No step may be under way."""
        with self._changed:
            self._next = [0] * shards  # the number of the step that each shard takes next
            self._busy = [False] * shards
            self._first = 0  # the number of the oldest pending step

    def submit(self, step: SubmittedStep) -> None:
        """Asks for a step; waits only while `queue_depth` others are under way."""
        if self._threads <= 1:
            self._run_here(step)
            return
        self.wait(lambda: len(self._pending) < self._queue_depth)
        with self._changed:
            self._pending.append(step)
            self._changed.notify_all()

    def _run_here(self, step: SubmittedStep) -> None:
        if self._error is not None:
            raise self._error
        threads = torch.get_num_threads() if self._threads else 1
        if threads != 1:
            torch.set_num_threads(1)
        try:
            for index in range(len(step.parts)):
                step.parts[index] = self._run(index, step.batch, step.vectors)
            step.left = 0
        except BaseException as error:
            self._error = error
            raise
        finally:
            if threads != 1:
                torch.set_num_threads(threads)

    def wait_for_all(self) -> None:
        """Waits until every step asked for is done."""
        self.wait(lambda: not self._pending)

    def wait(self, done: Callable[[], bool]) -> None:
        """Waits until `done`; raises the error of a step that failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or done())
            if self._error is not None:
                raise self._error

    def _take(self) -> tuple[int, SubmittedStep] | None:
        """A shard whose next step is pending and that no thread works on, earliest step first; None to stop."""
        while True:
            if self._closed or self._error is not None:
                return None
            ready = [
                (number, index)
                for index, number in enumerate(self._next)
                if not self._busy[index] and number - self._first < len(self._pending)
            ]
            if ready:
                number, index = min(ready)
                self._busy[index] = True
                return index, self._pending[number - self._first]
            self._changed.wait()

    def _work(self, inner_threads: int) -> None:
        torch.get_num_threads()  # torch's first use in a thread takes over the number of another: have that behind us
        torch.set_num_threads(inner_threads)
        while True:
            with self._changed:
                taken = self._take()
            if taken is None:
                return
            index, step = taken
            try:
                losses = self._run(index, step.batch, step.vectors)
            except BaseException as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._finish(index, step, losses)
                self._changed.notify_all()

    def _finish(self, index: int, step: SubmittedStep, losses: torch.Tensor) -> None:
        step.parts[index] = losses
        step.left -= 1
        self._next[index] += 1
        self._busy[index] = False
        while self._pending and self._pending[0].left == 0:
            self._pending.popleft()
            self._first += 1

    def close(self) -> None:
        """Lets the steps under way end, drops those not begun, and ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._pool:
            worker.join()
        self._pool.clear()
        self._closed = False


def parts_of(models: int, width: int) -> Sequence[tuple[int, int]]:
    """(start, length) of the shards of `width` models."""
    return [(start, min(width, models - start)) for start in range(0, models, width)]
