# SPDX-License-Identifier: MIT
"""Training steps of an array, spread over threads by model."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from . import _tune
from ._fuse import width as array_width
from ._shard import LossFunction, Shard, Vectors
from ._width import WidthTrial
from .errors import InvalidArgument
from .optim import ArrayOptimizer


class Step:
    """One training step of all models, perhaps still under way. `losses()` waits for it."""

    def __init__(self, runner: StepRunner, batch: Sequence[Any], vectors: Vectors, shards: int) -> None:
        self._runner, self.batch, self.vectors = runner, batch, vectors
        self.parts: list[torch.Tensor | None] = [None] * shards
        self.left = shards

    def losses(self) -> torch.Tensor:
        """The models' losses of this step, `[B]`."""
        self._runner._wait(lambda: self.left == 0)
        return torch.cat([part for part in self.parts if part is not None])


class StepRunner:
    """Forward, backward and optimizer step of an array; on a CPU each thread trains whole models.

    `loss_function(array, *batch)` returns the losses `[b]` of the array it is given, which holds all B models
    or some of them (`dnnsuite.nn.functional` has losses that do not ask which). Every tensor of a batch is
    `[B, ...]` (`dnnsuite.stack` makes one of a batch that all models share).

    On a CPU the models are dealt out in shards and `step` returns at once, as on a GPU: a thread takes one
    shard through a whole step, with no barrier inside, and up to `queue_depth` steps are under way, since
    model i's next step waits for nothing but its last. `threads` defaults to torch's number of threads.
    `width`, the models per shard, is measured on the first steps (they are real training steps; the result
    does not depend on the width) unless it is given. Elsewhere `step` runs the whole array and leaves the
    waiting to the device; `scaler` is torch's, for float16, and one for all models: an overflow in one of
    them skips the step of all.

    Use it as a context manager, or call `close`. An error in a step is raised by the next call.
    """

    def __init__(
        self,
        array: torch.nn.Module,
        optimizer: ArrayOptimizer,
        loss_function: LossFunction,
        *,
        threads: int | None = None,
        width: int | None = None,
        queue_depth: int = 2,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.B = array_width(array)
        for name, value in (("threads", threads), ("width", width), ("queue_depth", queue_depth)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InvalidArgument(f"{name} must be a whole number, 1 or more; got {value!r}")
        self._array, self._optimizer, self._loss_function = array, optimizer, loss_function
        self._scaler = scaler
        self._on_cpu = all(p.device.type == "cpu" for p in array.parameters())
        if self._on_cpu and scaler is not None:
            raise InvalidArgument("a GradScaler is for float16 on a GPU; on a CPU leave scaler out")
        self.threads = threads or torch.get_num_threads()
        self.queue_depth = queue_depth
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._pending: deque[Step] = deque()
        self._workers: list[threading.Thread] = []
        self._closed = False
        self.width = min(width or self.B, self.B)
        self._trial: WidthTrial | None = None
        if self._on_cpu:
            self._start_cpu(width)
        else:
            self._deal()

    def _start_cpu(self, width: int | None) -> None:
        from . import _C

        _C.heap_retain()  # step-sized buffers are reused, not page-faulted anew each step
        if width is None:
            shapes = [list(p.shape[1:]) for p in self._array.parameters()]
            key = _tune.key("step width", type(self._array).__name__, shapes, self.B, self.threads)
            self._trial = WidthTrial(self.B, self.threads, key)
            self.width = self._trial.width
        self._deal()
        workers = min(self.threads, self.B)
        inner = max(1, self.threads // workers)
        mine = torch.get_num_threads()
        atexit.register(self.close)  # a thread inside an operator must not outlive the interpreter
        for index in range(workers):
            name = f"dnnsuite-step-{index}"
            self._workers.append(threading.Thread(target=self._work, args=(inner,), name=name, daemon=True))
            self._workers[-1].start()
        torch.set_num_threads(mine)

    def _deal(self) -> None:
        """Deals the models out in shards of `width`. No step may be under way."""
        shards = [
            Shard(
                self._array,
                self._optimizer,
                self._loss_function,
                start,
                min(self.width, self.B - start),
                self._scaler,
            )
            for start in range(0, self.B, self.width)
        ]
        with self._changed:
            self._shards = shards
            self._next = [0] * len(shards)  # the number of the step that each shard takes next
            self._busy = [False] * len(shards)
            self._first = 0  # the number of the oldest pending step

    def step(self, *batch: Any) -> Step:
        """Asks for one training step on `batch`; waits only while `queue_depth` steps are under way."""
        for x in batch:
            if isinstance(x, torch.Tensor) and (x.dim() == 0 or x.size(0) != self.B):
                raise InvalidArgument(
                    f"a batch for {self.B} models is [{self.B}, ...], got {list(x.shape)}; "
                    f"dnnsuite.stack(x, B={self.B}) "
                    "shares one batch among them"
                )
        if self._closed:
            raise InvalidArgument("this StepRunner is closed")
        step = Step(self, batch, self._vectors(), len(self._shards))
        if not self._on_cpu:
            step.parts = [shard.step(batch, step.vectors) for shard in self._shards]
            step.left = 0
            return step
        if self._trial is None or self._trial.done:
            self._submit(step)
        else:
            self._try(step, self._trial)
        return step

    def _try(self, step: Step, trial: WidthTrial) -> None:
        """Runs one step alone, for its time."""
        begin = time.perf_counter()
        self._submit(step)
        self.synchronize()
        trial.add(time.perf_counter() - begin)
        if trial.width != self.width:
            self.width = trial.width
            self._deal()

    def _vectors(self) -> Vectors:
        names = self._optimizer.per_model
        return [{name: group[name] for name in names} for group in self._optimizer.param_groups]

    def _submit(self, step: Step) -> None:
        self._wait(lambda: len(self._pending) < self.queue_depth)
        with self._changed:
            self._pending.append(step)
            self._changed.notify_all()

    def synchronize(self) -> None:
        """Waits until every step asked for is done."""
        self._wait(lambda: not self._pending)

    def _wait(self, done: Any) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or done())
            if self._error is not None:
                raise self._error

    def _take(self) -> tuple[int, Step] | None:
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
        torch.set_num_threads(inner_threads)
        while True:
            with self._changed:
                taken = self._take()
            if taken is None:
                return
            index, step = taken
            try:
                losses = self._shards[index].step(step.batch, step.vectors)
            except BaseException as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._finish(index, step, losses)
                self._changed.notify_all()

    def _finish(self, index: int, step: Step, losses: torch.Tensor) -> None:
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
        for worker in self._workers:
            worker.join()
        if self._workers:
            atexit.unregister(self.close)
            self._workers.clear()

    def __enter__(self) -> StepRunner:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.synchronize()
        finally:
            self.close()
