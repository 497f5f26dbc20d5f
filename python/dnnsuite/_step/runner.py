# SPDX-License-Identifier: MIT
"""Runner of an array's training steps, spread over threads by model."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from .. import _memory as memory
from .. import _under_way as under_way
from .._fuse import OwnAttributes, asks_for_numbers, loops, models_differ, run_in_a_loop, state_bytes
from .._fuse import width as array_width
from .._torch import mark_stepped
from ..errors import InvalidArgument
from ..nn.sharing import own_what_trains
from ..optim import ArrayOptimizer, GradScaler
from .batches import LentBatches
from .capture import CudaDevice, CudaGraphs, NotPlain, PythonState, Recordings, Scripts, guards
from .choices import loop_key, shares_products, width_trial, widths_by_layout
from .deal import Deal, autocast_now, parts_of
from .denormals import Flushed
from .generators import SharedDraws
from .layout_widths import LayoutWidths
from .loop_trial import LoopTrial
from .part import LossFunction, StepPart
from .refusals import check_batch, check_counts, check_optimizer, check_scaler, hooks_after_a_step, in_parts
from .samples import warn_of_single_samples
from .shard import Shard, Vectors
from .shard_width_search import WidthTrial
from .threads import ShardThreads, SubmittedStep
from .updates import Updates

__all__ = ["StepRunner"]

Optimizers = ArrayOptimizer | Sequence[ArrayOptimizer]
Scaler = GradScaler | torch.amp.GradScaler


_FEW_BYTES = 2**26  # that are kept: to page them in again costs a small model's step


class StepRunner:
    """Train an array step by step: forward, backward and optimizer step, recorded once and replayed without Python.

    On a CPU the models are divided into shards, and each thread takes one shard through a whole step, with no barrier
    inside; on a GPU a step is replayed as a CUDA graph. Results are the same bits as without recording. Use it as a
    context manager, or call `close`. docs/multiply/step_runner.md has the details.

    Args:
        array: an array of B models, from `dnnsuite.fuse` or of layers of `dnnsuite.nn`.
        optimizer: an optimizer of `dnnsuite.optim` for the array's parameters, or a list of several. Its hooks before a
            step are refused, those after a step are called.
        loss_function: `(array, *batch)` → losses `[b]` of the `b` models in the array that it is given, all B or a
            shard of them; or `(losses, figures)` with numbers `[b, n]` to look at. It must only compute: what it
            prints or counts happens in the first steps only. `torch.autocast` may be used inside, or around `step`.
            For several optimizers a list, one for each.
        threads: CPU threads; by default torch's number. With several, `step` returns before the step is done.
        width: models per shard; by default measured on the first steps, which train as all others do.
        queue_depth: most steps under way at a time.
        capture: record steps and replay them; False runs every step as written.
        accumulate: take each batch in this many equal parts (dimension 1) before the update, to save activations.
        scaler: `optim.GradScaler`, with a scale per model, or torch's, which skips the step of all models on an
            overflow. For several optimizers a list, one or None for each.
        flush_denormals: treat, on a CPU, numbers below 1.2e-38 as zero inside a step: models whose softmax saturates
            make many of them, and they can double the time of a step.

    Raises:
        InvalidArgument: an argument is refused, or array and optimizer are of different numbers of models.

    With lists, as of a GAN's discriminator and generator, each step trains one part of the models after the other: the
    loss function of each in turn, backward, and its optimizer, while all other parameters are held. A model does not
    wait for the others in between, and the step's `losses` are `[B, parts]`.

    A batch is made of tensors `[B, ...]`, in tuples and dicts that may be nested. `dnnsuite.stack` makes one of a
    batch that all models share: without it a batch of just B samples would be one sample for each model. A list is
    one tensor per model, of any first sizes: each model then runs alone, on `[1, n, ...]`.

    Python values that a step reads are guarded: another value needs another recording. Numbers that change, as a
    schedule in an attribute, become inputs of the recording where they are factors, summands or bounds of tensors.
    Code that cannot be replayed runs as written, and `mode` names the reason and the line, as in `eager: ... at
    model.py:12 in forward`.

    The array may be edited between two steps (`array.drop(2, optimizer)`); a number of models that was recorded
    before records nothing anew. With several threads an error in a step is raised by its `losses`, or by the next
    call; models whose shard failed have not taken the step, the others have. Steps that no model had begun are
    cancelled, and their `losses` raise `StepCancelled`.

    While a StepRunner is open on a CPU, large tensors of all code in the process come from a memory pool, which saves
    page faults; tensors of the pool stay valid afterwards.

    >>> import torch, dnnsuite
    >>> from dnnsuite import nn, optim
    >>> array = dnnsuite.fuse([torch.nn.Linear(4, 1) for _ in range(3)])
    >>> optimizer = optim.SGD(array.parameters(), lr=[0.1, 0.01, 0.001])
    >>> loss = lambda array, x, y: nn.functional.mse_loss(array(x), y)
    >>> x, y = dnnsuite.stack(torch.randn(8, 4), B=3), dnnsuite.stack(torch.randn(8, 1), B=3)
    >>> with dnnsuite.StepRunner(array, optimizer, loss, threads=1) as runner:
    ...     steps = [runner.step(x, y) for _ in range(5)]
    ...     steps[-1].losses().shape
    torch.Size([3])
    """

    def __init__(
        self,
        array: torch.nn.Module,
        optimizer: Optimizers,
        loss_function: LossFunction | Sequence[LossFunction],
        *,
        threads: int | None = None,
        width: int | None = None,
        queue_depth: int = 2,
        capture: bool = True,
        accumulate: int = 1,
        scaler: Scaler | Sequence[Scaler | None] | None = None,
        flush_denormals: bool = True,
    ) -> None:
        check_counts(
            {"threads": threads, "width": width, "queue_depth": queue_depth, "accumulate": accumulate}
        )
        optimizers, losses, scalers = in_parts(optimizer, loss_function, scaler)
        self._on_cpu = all(p.device.type == "cpu" for p in array.parameters())
        for one in scalers:
            check_scaler(one, self._on_cpu)
        self._loss_functions, self._scalers, self._accumulate = losses, scalers, accumulate
        devices = {p.device for p in array.parameters()}
        self._flush = Flushed if flush_denormals and self._on_cpu else contextlib.nullcontext
        self._capture = capture
        self._home = next(iter(devices)) if len(devices) == 1 else torch.device("cpu")
        can_capture = len(devices) == 1 and self._home.type in ("cpu", "cuda")
        self._device = self._home.type if can_capture else "cpu"  # the autocast that counts
        self._can_capture = capture and can_capture
        self._asked_width = width
        self.threads = threads or torch.get_num_threads()
        self.queue_depth = queue_depth
        self._closed = False
        self._later = self._on_cpu and self.threads > 1  # a step may begin when its caller has gone on
        self._warm = self._looked = False
        self._eager: dict[str, str] = {}  # arrays that cannot be captured, and why
        if self._on_cpu:  # step-sized buffers are reused, not page-faulted anew each step
            self._let_memory_go = memory.hold_while(self)
        self._trial: WidthTrial | None = None
        self._layouts: LayoutWidths | None = None
        self._forget()
        self._set_up(array, optimizers)

    def __repr__(self) -> str:
        models = getattr(self._array, "single_name", type(self._array).__name__)
        steps = "closed" if self._closed else self.mode
        optimizers = " + ".join(type(one).__name__ for one in self._optimizers)
        return (
            f"StepRunner({self.B} x {models}, {optimizers}, threads={self.threads}, "
            f"width={self.width}, {steps})"
        )

    def _forget(self) -> None:
        """Forget what was recorded."""
        self._scripts = Scripts()
        self._known = Recordings(self._loss_functions, shared=all(one is None for one in self._scalers))

    def _set_up(self, array: torch.nn.Module, optimizers: tuple[ArrayOptimizer, ...]) -> None:
        """Choose a width for the current `array`, divide it into shards and start the threads; an error changes
        nothing."""
        B = array_width(array)
        for one in optimizers:
            check_optimizer(one, B)
        own_what_trains(array)  # a shard would keep it for itself
        layouts = self._widths_by_layout(array, B)
        width, trial = self._choose_width(array, B, layouts is not None)
        self._loop_trial: LoopTrial | None = None
        self._loop_key = loop_key(array, B, self.threads, self._capture)
        deal = self._dealt_out(array, optimizers, width, False)
        self._end_threads()
        self._array, self._optimizers, self.B, self.width, self._trial = array, optimizers, B, width, trial
        self._layouts = layouts
        self._modes, self._autocast, self._draws = (
            guards.ArrayModes(array),
            autocast_now(self._device),
            SharedDraws(),
        )
        self._differing = False  # models that were alike have attributes of their own since
        self._updates = Updates(optimizers)
        self._lent = LentBatches()
        self._threads = ShardThreads(self.threads if self._on_cpu else 0, self.queue_depth)
        self._stop_threads = weakref.finalize(self, self._threads.stop)
        self._stop_threads.atexit = False  # threads.py waits for them then
        for one in optimizers:
            mark_stepped(one)
        self._take(deal, width)
        if self._on_cpu:
            self._threads.start(min(self.threads, B))
        for owner in (array, *optimizers):
            under_way.announce(owner, self._settle)

    def _widths_by_layout(self, array: torch.nn.Module, B: int) -> LayoutWidths | None:
        """Make the trials of widths by layout, for an array that shares state; widths found before an edit are kept."""
        if not self._on_cpu or self._asked_width is not None or not shares_products(array):
            return None
        if self._layouts is not None and array is self._array:
            return self._layouts.after_edit(B)
        return widths_by_layout(array, B, self.threads, self._capture)

    def _choose_width(self, array: torch.nn.Module, B: int, by_layout: bool) -> tuple[int, WidthTrial | None]:
        """Choose the models per shard: the user's number, the one found for this array before an edit, or a trial."""
        if not self._on_cpu or self._asked_width is not None:
            return min(self._asked_width or B, B), None
        settled = self._trial is not None and self._trial.done and array is self._array
        if settled or by_layout:  # the latter: until the layout of a batch is seen
            one = settled and self.width == 1
            return 1 if one else -(-B // min(self.threads, B)), self._trial if settled else None
        if state_bytes(array).shared:  # each shard would compute again what its models share
            return -(-B // min(self.threads, B)), None
        trial = width_trial(array, B, self.threads, self._capture)
        return trial.width, trial

    def _dealt_out(
        self, array: torch.nn.Module, optimizers: tuple[ArrayOptimizer, ...], width: int, loop: bool
    ) -> Deal:
        """Divide the models into shards of `width`, which run in a `loop` or all at once."""
        each = zip(self._loss_functions, optimizers, self._scalers, strict=True)
        parts = [StepPart(loss, optimizer, scaler, self._accumulate) for loss, optimizer, scaler in each]
        shards = [Shard(array, parts, start, length) for start, length in parts_of(array_width(array), width)]
        for shard in shards:
            run_in_a_loop(shard.array, loop)
        self._looping = loop
        replays: Scripts | CudaGraphs | None = None
        if self._can_capture and not loop:
            replays = self._scripts if self._on_cpu else CudaGraphs(CudaDevice(self._home))
        known = self._known if self._on_cpu else None
        return Deal(shards, self._loss_functions, replays, self._flush, autocast_now(self._device), known)

    def _take(self, deal: Deal, width: int) -> None:
        """Run steps of `deal` from now on. No step may be under way."""
        self._deal, self._dealt_width = deal, width
        self._python = PythonState(self._array, [shard.array for shard in deal.shards])
        self._own = [OwnAttributes(self._array, s.array, s.start, s.length) for s in deal.shards]
        self._threads.deal(len(deal.shards), deal.run_asked)

    def _end_threads(self) -> None:
        """End the threads of the last deal. No step may be under way."""
        if hasattr(self, "_threads"):
            self._stop_threads.detach()
            self._threads.close()

    def step(self, *batch: Any) -> SubmittedStep:
        """Ask for one training step on `batch`; wait only while `queue_depth` steps are under way.

        Raises:
            InvalidArgument: for a batch that is not one of B models, or after `close`.
            Exception: the error of this step; with several threads that of an earlier one that no call has raised.
        """
        if self._closed:
            raise InvalidArgument("this StepRunner is closed")
        after = [(one, hook) for one in self._optimizers for hook in hooks_after_a_step(one)]
        vectors = self._follow()
        ragged = check_batch(batch, self.B)
        if not self._looked and not ragged:
            self._looked = True
            warn_of_single_samples(batch, self.B)
        timed = self._follow_layout(batch) if self._layouts is not None and not ragged else True
        loop_trial = self._trial_of_a_loop()
        loop = loop_trial is not None and loop_trial.loop
        wanted = 1 if ragged else self.width
        if wanted != self._dealt_width or loop != self._looping:
            self.synchronize()
            self._take(self._dealt_out(self._array, self._optimizers, wanted, loop), wanted)
        threads = self._threads
        if self._later:
            batch = self._lent.lend(batch)
        asked = vectors, self._deal.read()
        step = SubmittedStep(threads.wait, batch, asked, len(self._deal.shards), len(self._optimizers))
        if not ragged and timed and self._trial is not None and not self._trial.done:
            self._try(step, self._trial)
        elif not ragged and loop_trial is not None and not loop_trial.done:
            self._try_loop(step, loop_trial)
        else:
            self._submit(step)
        if not self._later:
            self._python.carry_back()
        elif after or self._lent.awaited:
            self._settle()
            self._lent.hand_back()
        for optimizer, hook in after if step.error is None else ():
            hook(optimizer, (), {})
        if self._on_cpu and not self._warm and self.mode != "warming up":
            self._warm = True
            memory.trim(
                _FEW_BYTES
            )  # what the steps on the way to a replay took, copies of the state among it
        return step

    def _submit(self, step: SubmittedStep) -> None:
        """Hand a step to the threads; wait for one that may read what the user changes before the next."""
        deal = self._deal
        draws = self._draws
        if self._later and (deal.follows or draws.found or not draws.known or self._lent.awaited):
            self._threads.settle()
            deal.run_alone(True)
            draws.begin()
            try:
                self._threads.run_here(step)
            finally:
                draws.end()
            return
        deal.run_alone(not self._later)
        live = self._later and deal.reads_live(step.asked[1])
        self._threads.submit(step)
        if live:
            self._threads.settle()

    def _follow(self) -> Vectors:
        """Divide the array into shards again if it (train or eval, frozen or not, hooks, other models), the optimizer
        or autocast has changed since the last step; return the current hyper-parameters."""
        updates = self._updates
        known = not updates.changed and autocast_now(self._device) == self._autocast
        known = known and not self._differing
        rules, trained, vectors = updates.rules, updates.trained, updates.vectors()
        known = known and trained == updates.trained and not self._deal.code_changed()
        if known and rules == updates.rules and not self._modes.changed():
            if not self._python.changed():
                return vectors
            self._follow_python()
        else:
            self.synchronize()
            self._known.edited()
            self._set_up(self._array, self._optimizers)
        return self._updates.vectors()

    def _follow_python(self) -> None:
        """Copy Python values that have changed in the array's modules to the shards, or divide it again."""
        self.synchronize()
        try:
            if self._differing:
                raise NotPlain
            changed = self._python.carry_over()
        except NotPlain:
            self._known.edited()
            self._set_up(self._array, self._optimizers)
        else:
            self._deal.python_changed(changed, self._python.state())

    def _follow_layout(self, batch: Any) -> bool:
        """Take the width for the layout of a batch; return True if the step may be timed."""
        if self._loop_trial is not None or self._layouts is None:
            return False  # the former has taken over
        self._trial, known = self._layouts.follow(batch)
        self.width = self._trial.width
        return known

    def _try(self, step: SubmittedStep, trial: WidthTrial) -> None:
        """Time one step alone, for the search of a width."""
        clock = time.perf_counter if self._later else time.thread_time  # a busy neighbour does not decide
        begin = clock()
        self._submit(step)
        self.synchronize()
        trial.add(clock() - begin, self.mode == "captured")
        self.width = trial.width

    def _trial_of_a_loop(self) -> LoopTrial | None:
        """Return the comparison with a loop; None while steps are captured, or may yet be."""
        if self._loop_trial is None and self._on_cpu and (self._trial is None or self._trial.done):
            key = self._loop_key
            if key not in self._eager and self.mode.startswith("eager"):
                self._eager[key] = self.mode
            if key in self._eager:
                wide = -(-self.B // min(self.threads, self.B))
                self._loop_trial = LoopTrial(key, self.width, wide)
                if self._asked_width is not None:  # who gives a width gets the same bits in each run
                    self._loop_trial.settle(asks_for_numbers(self._array), "", self.width)
                self._follow_loop_trial(self._loop_trial)
        return self._loop_trial

    def _try_loop(self, step: SubmittedStep, trial: LoopTrial) -> None:
        """Time one step alone, for the comparison with a loop."""
        begin = time.perf_counter()
        self._submit(step)
        self.synchronize()
        running = all(loops(shard.array) for shard in self._deal.shards)
        trial.add(time.perf_counter() - begin, self.B / min(self.threads, self.B), running)
        self._follow_loop_trial(trial)

    def _follow_loop_trial(self, trial: LoopTrial) -> None:
        self.width = trial.width
        if trial.done:
            run_in_a_loop(self._array, None, trial.why)

    @property
    def mode(self) -> str:
        """`captured`, `warming up`, or `eager: ` and the reason."""
        if not self._capture:
            return "eager: capture=False" + "; its models run in a loop" * self._looping
        if not self._can_capture:
            return "eager: the array is neither on a CPU nor on one CUDA device"
        if self._looping:
            return f"{self._eager[self._loop_key]}; its models run in a loop"
        return self._deal.mode

    @property
    def settled(self) -> bool:
        """True once the choices for all further steps are made: replayed or not, models per shard, a loop or not."""
        trial, loop_trial = self._trial, self._loop_trial
        if self.mode == "warming up" or (trial is not None and not trial.done):
            return False
        if not (self._on_cpu and self.mode.startswith("eager")):
            return self._dealt_width == self.width
        return loop_trial is not None and loop_trial.done and loop_trial.loop == self._looping

    def refresh(self, array: torch.nn.Module | None = None, optimizer: Optimizers | None = None) -> None:
        """Divide the current array into shards again; `array` and `optimizer`, or those of all parts, replace the old.

        What was captured is forgotten. Models dropped, added or replaced, a switch of train and eval, freezing, hooks,
        Python values of the modules and an optimizer's flags, groups and state are noticed without it. An error leaves
        the runner as it was.
        """
        if self._closed:
            raise InvalidArgument("this StepRunner is closed")
        given = self._optimizers if optimizer is None else optimizer
        optimizers, _, _ = in_parts(given, self._loss_functions, self._scalers)
        self.synchronize()
        self._forget()
        self._set_up(self._array if array is None else array, optimizers)

    def synchronize(self) -> None:
        """Wait until every step asked for is done; raise the error of one that failed, if no call has raised it yet.

        Python values that a forward changes, such as a counter, are up to date in the array after it.
        """
        self._threads.wait_for_all()
        self._carry_back()

    def _settle(self) -> None:
        """Wait until no step is under way, before the array is read or changed."""
        self._threads.settle()
        self._carry_back()

    def _carry_back(self) -> None:
        """Copy Python values that the models' code has changed in the shards to the array."""
        self._python.carry_back()
        for own in self._own:
            own.give_back()
        if not self._deal.replayed:
            shards = [shard.array for shard in self._deal.shards]
            self._differing = models_differ(self._array, shards) or self._differing

    def close(self) -> None:
        """Finish the steps asked for, end the threads, and let the memory pool go. May be called again.

        Raises:
            Exception: the error of a step that failed, if no call has raised it yet; all is closed then too.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._end_threads()
            self._carry_back()
        finally:
            if self._on_cpu:
                memory.trim()
                self._let_memory_go()

    def __enter__(self) -> StepRunner:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(Exception):  # the error on its way out came first
            self.close()
