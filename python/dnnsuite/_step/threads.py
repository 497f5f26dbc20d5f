# SPDX-License-Identifier: MIT
"""Threads that run training steps of an array's shards, the steps of each shard in order."""

from __future__ import annotations

import atexit
import contextvars
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from .._torch_threads import hold_to_one, let_go
from ..errors import InvalidArgument, StepCancelled

RunShard = Callable[[int, tuple[Any, ...], Any], torch.Tensor]


class SubmittedStep:
    """A training step of all models that was asked for and may still be under way. `losses()` waits for it."""

    __slots__ = ("_losses", "_wait", "asked", "batch", "context", "error", "layout", "left", "number", "parts")

    def __init__(
        self,
        wait: Callable[[SubmittedStep], None],
        batch: Any,
        asked: Any,
        shards: int,
        losses: int = 1,
        layout: Any = None,
    ) -> None:
        """`losses` is the number that each model has of them, `layout` that of the caller's batch."""
        self._wait, self.batch, self.asked, self._losses = wait, batch, asked, losses
        self.parts: list[torch.Tensor | None] = [None] * shards
        self.layout = layout
        self.context: contextvars.Context | None = None  # the caller's, for code that reads context variables
        self.left = shards  # shards that have not ended the step
        self.number = 0  # of the steps submitted, from 1; 0 for one that ran in the caller's thread
        self.error: BaseException | None = None

    def __repr__(self) -> str:
        if self.error is not None:
            return f"SubmittedStep(failed: {self.error})"
        return f"SubmittedStep({f'{self.left} of {len(self.parts)} shards under way' if self.left else 'done'})"

    def losses(self) -> torch.Tensor:
        """Wait for the step, and return the models' losses `[B]`; those of several parts are `[B, parts]`.

        Raises:
            StepCancelled: if the step was given up: an earlier step failed, or its StepRunner ended before it was done.
            Exception: the error of this step, if it failed.
        """
        found = self._found()
        if self._losses > 1:
            return found[:, : self._losses]
        return found if found.dim() == 1 else found[:, 0]

    def figures(self) -> torch.Tensor:
        """Wait for the step, and return the numbers `[B, n]` that the loss function gave beside the losses.

        Raises:
            InvalidArgument: it gave none. Others as `losses` does.
        """
        found = self._found()
        if found.dim() == 1 or 1 < found.size(1) == self._losses:
            raise InvalidArgument("the loss function gives no figures: let it return (losses, figures)")
        return found[:, self._losses :]

    def _found(self) -> torch.Tensor:
        self._wait(self)
        if self.error is not None:
            raise self.error
        parts = [part for part in self.parts if part is not None]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class NotCopied:
    """Mix-in of what owns threads, which no copy would have."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InvalidArgument(
            f"a {type(self).__name__} cannot be copied or saved: copy what it trains, as in "
            "copy.deepcopy((array, optimizer)), and make a new one for the copy"
        )


class ShardThreads:
    """`threads` threads and the steps that are under way, at most `queue_depth` of them.

    A shard's next step waits for its last step only. With one thread the steps run in the caller's thread, because
    there is nothing to overlap with; with 0 threads too, and torch's own threads are not limited. With more, torch's
    operators in the caller's thread use one CPU thread from a call of `submit` until the caller has waited for the
    newest step: the cores are these threads'.

    All shards take every step, or none does. If one fails, the others still take it, as separate models would; later
    steps that no shard has begun are cancelled. The error is raised by the step's `losses` or by the next call,
    whichever comes first, and once by the latter; after that the threads serve on.

    Nothing here refers to the StepRunner, so that it can be collected while threads wait for its steps.
    """

    def __init__(self, threads: int, queue_depth: int) -> None:
        self._threads, self._queue_depth = threads, queue_depth
        self._changed = threading.Condition()
        self._error: BaseException | None = None  # of a step that failed, until a call has raised it
        self._pending: deque[SubmittedStep] = deque()
        self._submitted = self._waited = 0  # numbers of the newest step, and of that waited for
        self._pool: list[threading.Thread] = []
        self._inside: threading.Thread | None = None  # the caller's, while it runs a step
        self._closed = False

    def start(self, workers: int) -> None:
        """Start `workers` threads, which share the cores evenly."""
        if self._threads <= 1:
            return
        inner = max(1, self._threads // workers)
        mine = torch.get_num_threads()
        _working.add(self)
        for index in range(workers):
            name = f"dnnsuite-step-{index}"
            self._pool.append(threading.Thread(target=self._work, args=(inner,), name=name, daemon=True))
            _started.add(self._pool[-1])
            self._pool[-1].start()
        torch.set_num_threads(mine)

    def deal(self, shards: int, run: RunShard) -> None:
        """Serve `shards` shards from now on; `run` runs a step of one. No step may be under way."""
        with self._changed:
            self._run = run
            self._next = [0] * shards  # the number of the step that each shard takes next
            self._busy = [False] * shards
            self._first = 0  # the number of the oldest pending step

    # -- the caller's side -----------------------------------------------------------------------------------------

    def submit(self, step: SubmittedStep) -> None:
        """Ask for a step; wait only while `queue_depth` others are under way.

        Raises:
            InvalidArgument: after `close`.
            Exception: the error of an earlier step, if no call has raised it yet; `step` is not begun then.
        """
        if self._threads <= 1:
            self._run_here(step)
            if step.error is not None:
                raise step.error
            return
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._pending) < self._queue_depth or self._error is not None or self._closed
            )
            self._raise_error()
            if self._closed:
                raise InvalidArgument("this StepRunner is closed")
            step.context = contextvars.copy_context()
            self._pending.append(step)
            self._submitted += 1
            step.number = self._submitted
            self._changed.notify_all()
        hold_to_one(self)

    def run_here(self, step: SubmittedStep, spread: bool = False) -> None:
        """Run a step in the caller's thread, with operators `spread` over all threads or not; no other may be under
        way. Errors are those of `submit`."""
        with self._changed:
            self._raise_error()
        self._run_here(step, self._threads if spread else 1)
        self._error = step.error

    def _run_here(self, step: SubmittedStep, inner: int = 1) -> None:
        threads = torch.get_num_threads() if self._threads else inner
        if threads != inner:
            torch.set_num_threads(inner)
        before, self._inside = self._inside, threading.current_thread()
        try:
            for index in range(len(step.parts)):
                try:
                    step.parts[index] = self._run(index, step.batch, step.asked)
                except BaseException as error:  # also where the user interrupts: the other models take the step
                    step.error = step.error or error
            step.left = 0
            if step.error is not None and not isinstance(step.error, Exception):
                raise step.error
        finally:
            self._inside = before
            if threads != inner:
                torch.set_num_threads(threads)

    def wait_for_all(self) -> None:
        """Wait until every step asked for has ended; raise the error of one that failed, if no call has yet."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pending or self._closed)
            self._waited = self._submitted
            let_go(self)
            self._raise_error()

    def settle(self) -> bool:
        """Wait until every step asked for has ended; errors are left to `wait_for_all`.

        Returns False, at once, if a step that is under way asks for it: its code looks at the array.
        """
        asks = threading.current_thread()
        if asks is self._inside or asks in self._pool:
            return False
        if self._pending:
            with self._changed:
                self._changed.wait_for(lambda: not self._pending or self._closed)
        self._waited = self._submitted
        let_go(self)
        return True

    def wait(self, step: SubmittedStep) -> None:
        """Wait until `step` has ended, or is known never to end."""
        if step.left or step.error is not None:
            with self._changed:
                self._changed.wait_for(lambda: step.left == 0 or self._closed)
                if step.left:
                    step.error = StepCancelled("the StepRunner ended before this step was done")
                if step.error is self._error:
                    self._error = None  # its caller learns it from the step
        if step.number == self._submitted:
            self._waited = step.number
            let_go(self)

    @property
    def under_way(self) -> bool:
        """True if nobody has waited for the newest step yet."""
        return self._waited != self._submitted

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self, finish: bool = True) -> None:
        """End the threads, and first, if asked to `finish`, every step; other steps not begun are cancelled.

        Raises:
            Exception: the error of a step that failed, if no call has raised it yet; the threads have ended then.
        """
        try:
            if finish:
                with self._changed:
                    self._changed.wait_for(lambda: not self._pending or self._closed)
        finally:
            self.stop()
            for worker in self._pool:
                if worker is not threading.current_thread():  # the garbage collector may run in one of them
                    worker.join()
            self._pool.clear()
        with self._changed:
            self._raise_error()

    def stop(self) -> None:
        """Tell the threads to end after their current shard, and wake up all waiting threads. Does not wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        let_go(self)

    # -- the threads' side -----------------------------------------------------------------------------------------

    def _work(self, inner_threads: int) -> None:
        torch.get_num_threads()  # torch's first use in a thread takes over the number of another: have that behind us
        torch.set_num_threads(inner_threads)
        last = -1
        while True:
            with self._changed:
                taken = self._take(last)
            if taken is None:
                return
            last, step = taken
            losses, error = None, None
            try:
                assert step.context is not None
                losses = step.context.copy().run(self._run, last, step.batch, step.asked)
            except BaseException as raised:
                error = raised
            with self._changed:
                self._finish(last, step, losses, error)
                self._changed.notify_all()
            del taken, step, losses, error  # not held while this thread waits for the next

    def _take(self, last: int) -> tuple[int, SubmittedStep] | None:
        """Return a shard whose next step is pending and that no thread works on, earliest step first; None to end.

        A thread goes on with the shard it had `last`, while the core's caches hold its models, but not with the newest
        step: the oldest would end so late that the threads were idle while the caller makes the next batch.
        """
        while True:
            if self._closed:
                return None
            ready = [
                (number, index)
                for index, number in enumerate(self._next)
                if not self._busy[index] and number - self._first < len(self._pending)
            ]
            if ready:
                newest = self._first + len(self._pending) - 1
                going_on = [one for one in ready if one[1] == last and one[0] < newest]
                number, index = min(going_on or ready)
                self._busy[index] = True
                return index, self._pending[number - self._first]
            self._changed.wait()

    def _finish(
        self, index: int, step: SubmittedStep, losses: torch.Tensor | None, error: BaseException | None
    ) -> None:
        if error is not None:
            if step.error is None:
                step.error = error
                self._error = self._error or error
            self._cancel_after(self._next[index], error)
        step.parts[index] = losses
        step.left -= 1
        self._next[index] += 1
        self._busy[index] = False
        while self._pending and self._pending[0].left == 0:
            self._pending.popleft()
            self._first += 1

    def _cancel_after(self, failed: int, error: BaseException) -> None:
        """Cancel the steps after number `failed` that no shard has begun."""
        begun = max(number + busy for number, busy in zip(self._next, self._busy, strict=True)) - 1
        while self._first + len(self._pending) - 1 > max(failed, begun):
            step = self._pending.pop()
            step.error = StepCancelled(f"an earlier step failed: {error!r}")
            step.left = 0


_working: weakref.WeakSet[ShardThreads] = weakref.WeakSet()
_started: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End all threads before the interpreter does: none may be inside an operator then, or free the tensors of a
    runner that it was the last to hold, after which nobody has waited for it."""
    for threads in list(_working):
        threads.stop()
    for threads in list(_working):
        threads.close(finish=False)
    for worker in list(_started):
        worker.join()
