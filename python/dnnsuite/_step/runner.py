# SPDX-License-Identifier: MIT
"""Runner of an array's training steps, spread over threads by model."""

from __future__ import annotations

import atexit
import contextlib
import time
from typing import Any

import torch

from .._fuse import width as array_width
from ..errors import InvalidArgument
from ..optim import ArrayOptimizer, GradScaler
from . import memory, tune
from .capture import CapturedStep, CudaGraphs, Scripts, guards
from .denormals import Flushed
from .shard import LossFunction, Shard, StepOptions, Vectors
from .shard_width_search import WidthTrial
from .threads import ShardThreads, SubmittedStep, parts_of

__all__ = ["StepRunner"]

_CAPTURE_STEPS = 4  # of a new shard until it is replayed for the second time


Autocast = tuple[bool, torch.dtype, bool]


def _autocast() -> Autocast:
    """The CPU's autocast as the calling thread has it."""
    enabled, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return enabled, dtype, torch.is_autocast_cache_enabled()


def _under(autocast: Autocast) -> contextlib.AbstractContextManager[Any]:
    """A block with that autocast, for threads that have none of their own."""
    enabled, dtype, cache = autocast
    if not enabled and not torch.is_autocast_enabled("cpu"):
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype, enabled, cache)


class StepRunner:
    """Forward, backward and optimizer step of an array; on a CPU each thread trains whole models.

    `loss_function(array, *batch)` returns the losses `[b]` of the array it is given, which holds all B models
    or some of them (`dnnsuite.nn.functional` has losses that do not ask which). Every tensor of a batch is
    `[B, ...]` (`dnnsuite.stack` makes one of a batch that all models share); tuples and dicts of tensors may be
    nested. A list is one tensor per model, of any first sizes: each model then runs alone, on `[1, n, ...]`.

    On a CPU the models are dealt out in shards: a thread takes one shard through a whole step, with no barrier
    inside. With several threads `step` returns at once, as on a GPU, and up to `queue_depth` steps are under
    way, since model i's next step waits for nothing but its last; with one thread `step` is the step.
    `threads` defaults to torch's number of threads. `width`, the models per shard, is measured on the first
    steps (they are real training steps; the result does not depend on the width) unless it is given. Elsewhere
    `step` runs the whole array and leaves the waiting to the device.

    With `capture` the operators of a step are recorded and from then on run without Python (on a CPU from C++, on
    a GPU as a CUDA graph), with the same bits; batches and hyper-parameters are read anew each time. Whatever
    cannot be replayed runs as written, and `mode` says why: shapes that keep changing, `.item()`, torch's random
    generator, hooks. The loss function must do nothing but compute: printing or counting in it happens in the
    first steps only, so use `capture=False` for that.

    `accumulate=k` takes each batch through in k equal parts (dimension 1) before the update, which sees the mean of
    their gradients: the activations of a part are all that is kept. `scaler` is `optim.GradScaler`, with a scale per
    model, or torch's, which skips the step of all when one overflows. Clipping is the optimizer's `max_grad_norm`.

    On a CPU numbers below 1.2e-38 are zero inside a step, unless `flush_denormals=False`: a model that is sure of its
    answers makes many of them, and they can double a step's time. Threads that torch starts itself are not told.

    `torch.autocast` may be in the loss function or around `step`.

    Use it as a context manager, or call `close`. An error in a step is raised by the next call. The array may be
    edited between two steps (models dropped, added, replaced), after `synchronize`.
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
        capture: bool = True,
        accumulate: int = 1,
        scaler: GradScaler | torch.amp.GradScaler | None = None,
        flush_denormals: bool = True,
    ) -> None:
        named = {"threads": threads, "width": width, "queue_depth": queue_depth, "accumulate": accumulate}
        for name, value in named.items():
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InvalidArgument(f"{name} must be a whole number, 1 or more; got {value!r}")
        self._array, self._optimizer, self._loss_function = array, optimizer, loss_function
        self._on_cpu = all(p.device.type == "cpu" for p in array.parameters())
        if self._on_cpu and scaler is not None and not isinstance(scaler, GradScaler):
            raise InvalidArgument(
                "torch's GradScaler is for float16 on a GPU; on a CPU give dnnsuite.optim.GradScaler, or none"
            )
        self._options = StepOptions(scaler, accumulate)
        devices = {(p.device.type, p.device.index) for p in array.parameters()}
        self._flush = Flushed if flush_denormals and self._on_cpu else contextlib.nullcontext
        self._capture = capture
        self._can_capture = capture and len(devices) == 1 and devices.pop()[0] in ("cpu", "cuda")
        self._asked_width = width
        self.threads = threads or torch.get_num_threads()
        self.queue_depth = queue_depth
        self._closed = False
        self._last_vectors: Vectors = []
        self._warm = False
        self._workers = ShardThreads(self._run, self.threads if self._on_cpu else 0, queue_depth)
        if self._on_cpu:
            memory.keep()  # step-sized buffers are reused, not page-faulted anew each step
            atexit.register(self.close)  # a thread inside an operator must not outlive the interpreter
        self._set_up()

    def _set_up(self) -> None:
        """Chooses a width for the array as it is now, deals it out and starts the threads."""
        self.B = array_width(self._array)
        if self._optimizer.B != self.B:
            raise InvalidArgument(
                f"the array holds {self.B} models and its optimizer {self._optimizer.B}: give the optimizer to the "
                "edit of the array, as in array.drop(2, optimizer)"
            )
        self.width = min(self._asked_width or self.B, self.B)
        self._trial: WidthTrial | None = None
        if self._on_cpu and self._asked_width is None:
            shapes = [list(p.shape[1:]) for p in self._array.parameters()]
            how = "width of captured steps" if self._capture else "width of steps"
            key = tune.key(how, type(self._array).__name__, shapes, self.B, self.threads)
            self._trial = WidthTrial(self.B, self.threads, key, _CAPTURE_STEPS if self._capture else 1)
            self.width = self._trial.width
        self._modes, self._autocast = guards.ArrayModes(self._array), _autocast()
        self._state = self._optimizer.state
        self._deal(self.width)
        if self._on_cpu:
            self._workers.start(min(self.threads, self.B))

    def _deal(self, width: int) -> None:
        """Deals the models out in shards of `width`. No step may be under way."""
        replays = Scripts() if self._on_cpu else CudaGraphs()
        self._dealt = width
        self._shards = [
            Shard(self._array, self._optimizer, self._loss_function, start, length, self._options)
            for start, length in parts_of(self.B, width)
        ]
        self._captured = [
            CapturedStep(shard.train, shard.array, self._loss_function, shard.state, replays)
            for shard in self._shards
            if self._can_capture
        ]
        self._workers.deal(len(self._shards))

    def _run(self, index: int, batch: tuple[Any, ...], vectors: Vectors) -> torch.Tensor:
        """One step of one shard."""
        shard = self._shards[index]
        with self._flush(), _under(self._autocast):
            if not self._captured:
                return shard.step(batch, vectors)
            return self._captured[index](shard.part(batch), shard.hyper(vectors))

    def step(self, *batch: Any) -> SubmittedStep:
        """Asks for one training step on `batch`; waits only while `queue_depth` steps are under way."""
        if self._closed:
            raise InvalidArgument("this StepRunner is closed")
        self._follow()
        ragged = self._check(batch)
        wanted = 1 if ragged else self.width
        if wanted != self._dealt:
            self.synchronize()
            self._deal(wanted)
        step = SubmittedStep(self._workers.wait, batch, self._vectors(), len(self._shards))
        if ragged or self._trial is None or self._trial.done:
            self._workers.submit(step)
        else:
            self._try(step, self._trial)
        if self._on_cpu and not self._warm and self.mode != "warming up":
            self._warm = True
            memory.release()  # what the steps on the way to a replay took, copies of the state among it
        return step

    def _check(self, batch: Any) -> bool:
        """Refuses what is no batch of B models; says whether there is a list of one tensor per model in it."""
        if isinstance(batch, torch.Tensor):
            if batch.dim() == 0 or batch.size(0) != self.B:
                raise InvalidArgument(
                    f"a batch for {self.B} models is [{self.B}, ...], got {list(batch.shape)}; "
                    f"dnnsuite.stack(x, B={self.B}) "
                    "shares one batch among them"
                )
            return False
        if isinstance(batch, tuple):
            ragged = False
            for x in batch:
                ragged = self._check(x) or ragged
            return ragged
        if isinstance(batch, dict):
            return self._check(tuple(batch.values()))
        if not isinstance(batch, list):
            return False
        if len(batch) != self.B or not all(isinstance(t, torch.Tensor) for t in batch):
            raise InvalidArgument(
                f"a list in a batch holds one tensor per model, {self.B}; got {len(batch)} values"
            )
        return True

    def _follow(self) -> None:
        """Sees what was done to the array since the last step: train or eval, frozen or not, hooks, other models; and
        whether autocast is on."""
        known = self._optimizer.state is self._state and _autocast() == self._autocast
        if self._modes.changed() or not known:
            self.refresh()

    def _try(self, step: SubmittedStep, trial: WidthTrial) -> None:
        """Runs one step alone, for its time."""
        begin = time.perf_counter()
        self._workers.submit(step)
        self.synchronize()
        trial.add(time.perf_counter() - begin, self.mode == "captured")
        self.width = trial.width

    def _vectors(self) -> Vectors:
        """The hyper-parameters as they are; the same list again as long as no tensor in it is another one."""
        groups = self._optimizer.param_groups
        if len(groups) == len(self._last_vectors):
            pairs = zip(groups, self._last_vectors, strict=True)
            if not any(group[name] is not own[name] for group, own in pairs for name in own):
                return self._last_vectors
        names = self._optimizer.per_model
        self._last_vectors = [{name: group[name] for name in names} for group in groups]
        return self._last_vectors

    @property
    def mode(self) -> str:
        """How steps run: `captured`, `warming up`, or `eager: ` and the reason."""
        if not self._capture:
            return "eager: capture=False"
        if not self._can_capture:
            return "eager: the array is neither on a CPU nor on one CUDA device"
        modes = {captured.mode for captured in self._captured}
        for start in ("eager", "warming up"):
            for mode in sorted(modes):
                if mode.startswith(start):
                    return mode
        return "captured"

    def refresh(self, array: torch.nn.Module | None = None, optimizer: ArrayOptimizer | None = None) -> None:
        """Deals the array out anew, as it is now; `array` and `optimizer` take the place of the old ones.

        What was captured is forgotten. Models dropped, added or replaced, a switch of train and eval, freezing, hooks
        and an optimizer's `load_state_dict` are noticed without it; Python values that a model's code looks at are not.
        """
        self.synchronize()
        self._workers.close()
        self._array, self._optimizer = array or self._array, optimizer or self._optimizer
        self._set_up()

    def synchronize(self) -> None:
        """Waits until every step asked for is done."""
        self._workers.wait_for_all()

    def close(self) -> None:
        """Lets the steps under way end, drops those not begun, and ends the threads."""
        self._closed = True
        self._workers.close()
        if self._on_cpu:
            memory.release()
        atexit.unregister(self.close)

    def __enter__(self) -> StepRunner:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.synchronize()
        finally:
            self.close()
