# SPDX-License-Identifier: MIT
"""The `StepRunner`: what happens before, in and after a step, in order.

It asks guards whether all is as it was, divides the models into shards again if it is not (`deal.py`), lets an audit
take the place of a step (`capture/comparison.py`), and hands the step to threads (`choices.py`). How a shard takes its
step is told in `capture/step.py`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from .. import _memory as memory
from .. import _under_way as under_way
from .._C import Guards
from .._fuse import analysed_once, asks_for_numbers, chosen_loop, run_apart, take_from_models
from .._fuse import width as array_width
from .._thawed import put_off
from .._torch import mark_stepped, tree_leaves
from .._torch_threads import threads_of_caller, torch_threads
from ..errors import InvalidArgument, StaleRecording
from ..nn.sharing import own_what_trains
from ..optim import ArrayOptimizer, GradScaler
from .arguments import (
    check_array,
    check_batch,
    check_counts,
    check_optimizer,
    check_scaler,
    in_parts,
    own_copy,
    warn_of_single_samples,
)
from .capture import CudaDevice, CudaGraphs, NotPlain, Recordings, Scripts, guards
from .capture.comparison import Audits
from .carried_python import CarriedPython
from .choices import Asked, Dispatch, ShardWidths
from .deal import Deal, autocast_now, parts_of, readers_of_autocast
from .outside import CallOnce, arrays_reached, has_part, width_beside_others
from .part import LossFunction, RemovedParameters, StepPart, Updates
from .shard import Shard
from .surroundings import Flushed, interrupted_at_the_end
from .threads import NotCopied, SubmittedStep

__all__ = ["StepRunner"]

Optimizers = ArrayOptimizer | Sequence[ArrayOptimizer]
Each = tuple[ArrayOptimizer, ...]
Scaler = GradScaler | torch.amp.GradScaler
_RESTLESS = 12  # steps in a row that divide the array anew
_MOST_IN_DOUBT = 20  # steps in a row that warm up: no recording would serve the next ones
_LARGE = 2**17  # elements of a batch and of all parameters, from which on an eager step takes all threads
_SMALL_BYTES = 2**26  # of all parameters
_FEW_BYTES = 2**26  # that are kept: to page them in again costs a small model's step


class StepRunner(NotCopied):
    """Train an array step by step: forward, backward and optimizer step, recorded once and replayed without Python.

    On a CPU the models are divided into shards, and each thread takes one shard through a whole step without waiting
    for the others; on a GPU a step is replayed as a CUDA graph. The results are bit for bit those of eager steps. Use
    the runner as a context manager, or call `close`. docs/multiply/step_runner.md has the details.

    Args:
        array: an array of B models, from `dnnsuite.fuse` or of layers of `dnnsuite.nn`.
        optimizer: an optimizer of `dnnsuite.optim` for the array's parameters, or a list of several. Hooks that run
            after its step are called; hooks that run before it are refused.
        loss_function: `(array, *batch)` → losses `[b]` of the `b` models in its first argument, which is the whole
            array or a shard of it; or `(losses, figures)`, with further numbers `[b, n]`. It must have no side effects:
            anything it prints appears only in the first steps and in audits. `torch.autocast` may be used inside it, or
            around `step`. For several optimizers, a list of one function each.
        threads: number of CPU threads; torch's number by default. With several, `step` returns before a replayed step
            is done, and torch's operators in the caller's thread use one thread until it has waited for the newest
            step. Steps that run Python, and those shorter than 2 ms if that is faster, run in the caller's thread.
        width: number of models per shard; by default measured in the first steps, which train like all others.
        queue_depth: largest number of steps in flight; from 3 on, a thread runs two steps of its models in a row.
        capture: record steps and replay them; with False every step is eager.
        audit: interval of audits, in replayed steps. An audit runs a step replayed and eager from the same state, and
            compares the results bit for bit. The 10th, 100th, 1,000th, ... replayed step is audited, and one in each
            stretch of this many; 1 audits every step, 0 none.
        accumulate: number of equal parts of a batch (dimension 1) to compute one after the other before the update, to
            save memory for activations.
        scaler: `optim.GradScaler`, with a scale per model, or torch's, which skips the step for all models if one
            overflows. For several optimizers, a list with a scaler or None for each.
        flush_denormals: treat numbers below 1.2e-38 as zero inside a step on a CPU. Models whose softmax saturates
            produce many of them, and they can double the time of a step.

    Raises:
        InvalidArgument: an argument is refused, or array and optimizer have different numbers of models.

    With lists, for example for the discriminator and the generator of a GAN, each step trains one part of the models
    after the other: the loss function of each part, its backward pass and its optimizer, while the parameters of all
    other parts are frozen. Models do not wait for each other between parts, and the `losses` of the step are `[B,
    parts]`.

    A batch consists of tensors `[B, ...]`, in tuples and dicts that may be nested. `dnnsuite.stack` makes one from a
    batch that all models share; without it, a batch of exactly B samples would mean one sample per model. A list has
    one tensor per model, and their first dimensions may differ: each model then runs alone, on `[1, n, ...]`.

    Python values that a step reads are guarded: a new value leads to a new recording. Numbers that change, for example
    a schedule in an attribute, become inputs of the recording if tensors are multiplied by them, added to them or
    bounded by them. Code that cannot be replayed runs eagerly, and `mode` gives the reason and the line, for example
    `eager: ... at model.py:12 in forward`.

    The array may be edited between two steps (`array.drop(2, optimizer)`); a number of models that was recorded before
    is not recorded again. With several threads an error in a step is raised by its `losses`, or by the next call; the
    models of the failed shard have not taken the step, the others have. Steps that no model had started are cancelled,
    and their `losses` raise `StepCancelled`.

    While a StepRunner is open on a CPU, all large tensors in the process come from a memory pool, which saves page
    faults; tensors from the pool stay valid afterwards.

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
        queue_depth: int = 3,
        capture: bool = True,
        audit: int = 1000,
        accumulate: int = 1,
        scaler: Scaler | Sequence[Scaler | None] | None = None,
        flush_denormals: bool = True,
    ) -> None:
        check_array(array)
        self._audits = Audits(audit)
        check_counts({"threads": threads, "width": width, "queue_depth": queue_depth, "accumulate": accumulate})
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
        self.threads = threads or threads_of_caller()
        self._reached = arrays_reached(losses)
        width = width_beside_others(array, self._reached, width)
        self._asked = Asked(width, self.threads, capture, self._on_cpu)
        self.queue_depth = queue_depth
        self._closed = False
        self._dispatch = Dispatch(self.threads if self._on_cpu else 0, queue_depth, choose=width is None)
        self._warm = self._looked = False
        self._set_ups = self._in_doubt = 0  # in a row, one in each step; steps in a row that warm up
        if self._on_cpu:  # step-sized buffers are reused, not page-faulted anew each step
            self._let_memory_go = memory.hold_while(self)
        self._removed = RemovedParameters()
        self._forget()
        self._set_up(array, optimizers, None)

    def __repr__(self) -> str:
        models = getattr(self._array, "single_name", type(self._array).__name__)
        steps = "closed" if self._closed else self.mode
        optimizers = " + ".join(type(one).__name__ for one in self._optimizers)
        audits = f", {self.audits_passed} audits passed" * bool(self.audits_passed)
        return (
            f"StepRunner({self.B} x {models}, {optimizers}, threads={self.threads}, "
            f"width={self.width}, {steps}{audits})"
        )

    def _forget(self) -> None:
        """Forget what was recorded."""
        self._stale = ""  # why a recording was found to be so
        self._eager = ""  # the mode of steps that cannot be captured
        # Steps of all models show whether the code moves what cannot be put back: None before, False while they do.
        self._trusted: bool | None = None
        self._scripts = Scripts()
        self._recordings = Recordings(shared=all(one is None for one in self._scalers))

    def _set_up(self, array: torch.nn.Module, optimizers: Each, before: ShardWidths | None) -> None:
        """Choose a width for `array`, after that of `before`, deal it out and start the threads, or change nothing."""
        B = array_width(array)
        for one in optimizers:
            check_optimizer(one, B)
            one.follow_parameters()
        own_what_trains(array)  # a shard would keep it for itself
        take_from_models(array)
        self._removed.look(array, optimizers)
        widths = ShardWidths(array, self._asked, before)
        width = self._width_by(widths)
        eager = widths.whole_if_eager and (not self._can_capture or bool(self._stale))
        self._apart = not self._on_cpu or has_part(array, self._reached)  # from what the shards compute with
        itself = eager or self._may_take(width, B)
        first = before is None and self._can_capture and widths.searching and width < B and _is_small(array)
        deal = self._dealt_out(array, optimizers, width, B if first else 0, itself)
        self._dispatch.close()
        self._array, self._optimizers, self.B, self._widths, self._eager = array, optimizers, B, widths, ""
        self._modes, self._parameters = guards.modes_of(array), list(array.parameters())
        self._memory = guards.guard_addresses(Guards(), self._parameters)
        for read in readers_of_autocast(self._device):
            self._modes.result(read)
        self._updates = Updates(optimizers)
        self._layout: Any = None  # of the last batch, which was checked
        self._of_tensors = False  # that batch holds nothing else
        self._python = CarriedPython(array, deal.shards, bool(deal.captured))
        for one in optimizers:
            mark_stepped(one)
        self._dispatch.renew()
        self._run(deal, B if itself else width)
        self._dispatch.start(B)
        for owner in (array, *optimizers):
            under_way.announce(owner, self._settle)

    def _dealt_out(
        self,
        array: torch.nn.Module,
        optimizers: Each,
        width: int,
        rest: int = 0,
        itself: bool = False,
        capture: bool = True,
    ) -> Deal:
        """Divide the models into shards of `width`; with `rest` only the first has that width, and shards of `rest`
        models run as written until its recording serves all. With `itself` there is one shard, the array. Steps that
        cannot be captured run in a loop if that is faster; who gives a width gets the same bits in each run."""
        capture = capture and self._can_capture and not self._stale
        own = itself and self._asked.width is None
        self._loop = False if capture else None if own else asks_for_numbers(array)
        each = zip(self._loss_functions, optimizers, self._scalers, strict=True)
        parts = [
            StepPart(loss, optimizer, scaler, self._accumulate, self._removed.ids) for loss, optimizer, scaler in each
        ]
        B = array_width(array)
        places = parts_of(B, B if itself else width, rest)
        shards = [Shard(array, parts, start, length, self._loop, itself) for start, length in places]
        replays: Scripts | CudaGraphs | None = None
        if capture:
            replays = self._scripts if self._on_cpu else CudaGraphs(CudaDevice(self._home))
        shared, autocast = self._recordings if self._on_cpu else None, autocast_now(self._device)
        losses, trusted = self._loss_functions, bool(self._trusted)
        return Deal(shards, losses, replays, self._flush, autocast, shared, rest > 0, trusted)

    def _run(self, deal: Deal, width: int) -> None:
        """Run steps of `deal` from now on. No step may be under way."""
        self._deal, self._dealt_width = deal, width
        self._guards: Guards | None = None  # of all that `_follow` looks at
        self._steady = False  # the next step is replayed as the last one
        self._code = Guards()
        deal.guard_code(self._code)
        self._dispatch.threads.deal(len(deal.shards), deal.run)

    @property
    def _on_array(self) -> bool:
        """True if the next steps compute with the array itself: they run Python, and none is to be recorded."""
        return self._widths.whole_if_eager and self._way.startswith("eager")

    def _may_take(self, width: int, B: int) -> bool:
        """Return True if captured steps of `B` models in shards of `width` may compute with the array itself: in one
        shard, in the caller's thread, so that Python values are read when the step is asked for."""
        return width >= B and not (self._dispatch.later or self._apart)

    @property
    def _later(self) -> bool:
        """True if a step may begin when its caller has gone on."""
        return self._dispatch.later and not self._deal.itself

    def _width_by(self, widths: ShardWidths) -> int:
        """Take the width of `widths`, or all models for the caller's thread unless they go different ways."""
        return widths.models if self._dispatch.here and not widths.parted else widths.width

    def step(self, *batch: Any) -> SubmittedStep:
        """Request one training step on `batch`; wait only while `queue_depth` steps are running.

        Raises:
            InvalidArgument: for a batch that is not one of B models, or after `close`.
            StaleRecording: before the step, if an audit finds that its replay differs from the eager step.
            Exception: the error of this step; with several threads, that of an earlier step that no call has raised.
        """
        if self._closed:
            raise InvalidArgument("this StepRunner is closed")
        known = self._guards is not None and self._guards.hold()
        flat = guards.flatten(batch)
        if known and self._steady and flat[1] == self._layout is not None and self._audits.passes():
            return self._replayed(batch, flat)
        # The garbage collector waits for the end of a step that may look through the model; not in steps that stay
        # eager, which run the user's Python each time.
        collector = contextlib.nullcontext() if self._way.startswith("eager") else put_off()
        with interrupted_at_the_end(), collector, analysed_once():
            return self._stepped(batch, flat, known)

    def _stepped(self, batch: tuple[Any, ...], flat: Any, known: bool) -> SubmittedStep:
        """Take a step that is not replayed as the last one; `known` if all guards hold."""
        if not known:
            self._follow()
        layout, ragged = flat[1], False
        if layout is None or layout != self._layout:
            ragged, self._layout = self._checked(batch, layout)
        after = self._updates.hooks
        if self._in_doubt >= _MOST_IN_DOUBT:
            self._in_doubt = 0
            reasons = (one.unsettled for one in self._deal.captured)  # for which no replay is found
            self._discard(next(filter(None, reasons), "no recorded step was like the next"))
        if self._trusted is False and self.mode != "warming up":
            self._trusted = True
            if self.mode.startswith("eager"):
                self._call_once(self.mode)
        captured, parted = self.mode == "captured", self._deal.parted
        audit = self._audits.due(captured)
        if self._widths.searching and run_apart(self._array):
            self._widths.begin_narrow()
        timed = self._widths.follow(None if ragged else batch, parted)
        if not timed and not ragged and self._dispatch.several:
            self._dispatch.choose(self._settle, captured, parted)
        if self._python.differing:  # all that reads the array finds what the last step has left
            self._follow()
        self._redeal(1 if ragged else self.width, timed or self._widths.parted, ragged)
        step = self._step_of(batch, layout, None if self._later or not self._of_tensors else flat)
        try:
            if timed:
                self._try(step)
            elif audit:
                self._audit(step)
            else:
                self._submit(step)
        except CallOnce as error:
            step.error = error
        except BaseException:
            if self._deal.itself:
                self._python.carry_back()
            raise
        if isinstance(step.error, CallOnce):
            step = self._called_once(step)
        if not self._later:
            if self._deal.took_python():
                self._python.carry_back()
        elif after:
            self._settle()
        for optimizer, hook in after if step.error is None else ():
            hook(optimizer, (), {})
        self._in_doubt = self._in_doubt + 1 if self.mode == "warming up" else 0
        if not self._warm and not self._in_doubt:
            self._warm = True  # what the steps on the way to a replay took is let go, as copies of the state
            if self._on_cpu:
                memory.trim(_FEW_BYTES)
        self._steady = self._settles(after)
        return step

    def _called_once(self, step: SubmittedStep) -> SubmittedStep:
        """Take a step anew whose code must be called once for all models: with the array itself, as all further ones if
        the code changes values outside of it."""
        one_call, mode = self._deal.one_call, str(step.error)
        assert one_call is not None
        self._dispatch.threads.wait(step)  # so that its error is not raised again
        one_call.undo()
        if mode:
            self._call_once(mode)
        else:
            self._trusted = False
        self._redeal(self.B, False, False)
        again = self._step_of(step.batch, step.layout, step.asked[2])
        self._submit(again)
        return again

    def _call_once(self, mode: str) -> None:
        """Run further steps with the array itself, in this eager mode."""
        self._eager, self._trusted = mode, True
        self._asked = replace(self._asked, width=sys.maxsize)  # also after models were added
        self._widths = ShardWidths(self._array, self._asked)

    def _step_of(self, batch: Any, layout: Any, flat: Any) -> SubmittedStep:
        deal = self._deal
        asked = self._updates.vectors, deal.read(), flat
        return SubmittedStep(self._dispatch.threads.wait, batch, asked, len(deal.shards), len(self._optimizers), layout)

    def _settles(self, hooks: Sequence[Any]) -> bool:
        """Return True if a step on such a batch can be replayed at once, in the caller's thread: no choice is to be
        made for it, nothing is to be done after it, and it needs no guard but those of `_guards` and the layout."""
        dispatch = self._dispatch
        return (
            self._warm
            and not (dispatch.several or hooks or self._deal.ahead)
            and self._of_tensors
            and self._deal.quiet
            and self._widths.steady
            and self._dealt_width == self.width
        )

    def _replayed(self, batch: Any, flat: Any) -> SubmittedStep:
        """Replay a step as the last one, which `_settles`."""
        step = self._step_of(batch, flat[1], flat)
        self._steady = False  # after an error
        try:
            self._dispatch.threads.submit(step)
        except CallOnce as error:
            step.error = error
            step = self._called_once(step)
        if self._deal.took_python():
            self._python.carry_back()
        else:
            self._steady = True
        return step

    def _checked(self, batch: Any, layout: Any) -> tuple[bool, Any]:
        """Check a batch of another layout; return True if models differ in size, and the layout if it needs no further
        check."""
        self._steady = False
        self._of_tensors = all(type(part) is torch.Tensor for part in batch)
        tensors = (one for one in (*tree_leaves(batch), *self._array.parameters()) if isinstance(one, torch.Tensor))
        self._large = sum(one.numel() for one in tensors) >= _LARGE
        ragged = check_batch(batch, self.B)
        if not self._looked and not ragged:
            self._looked = True
            warn_of_single_samples(batch, self.B)
        return ragged, None if ragged else layout

    def _redeal(self, width: int, searches: bool, ragged: bool) -> None:
        """Divide the models into shards of `width` if they are not. A search of a width records the first shard ahead,
        with the rest in a wide one: as written a step of few models takes as long as one of many. Large models, whose
        activations would be the peak of memory, are not put together for that."""
        before = self._dealt_width
        proves = self._trusted is False and not self._apart
        itself = not ragged and (self._on_array or proves or self._may_take(width, self.B))
        anew = width != before or itself != self._deal.itself
        if not (ragged or self._eager) and self._way.startswith("eager"):
            self._eager = self._way
            anew = anew or itself or asks_for_numbers(self._array)
        # Once it is known whether the first shard, recorded ahead, can be replayed, the others are like it.
        scouted = all(one.replayed or one.refusal is not None for one in self._deal.captured) or not searches
        if anew or (self._deal.ahead and scouted):
            self.synchronize()
            if self._deal.itself:  # what models that run one by one have left is theirs in a copy, too
                take_from_models(self._array)
            rest = self.B if width < self.B and _is_small(self._array) else before if width < before else 0
            rest = rest if anew and searches and self._can_capture else 0
            deal = self._dealt_out(self._array, self._optimizers, width, rest, itself, not self._eager)
            self._python.deal(deal.shards, bool(deal.captured))
            self._run(deal, width)
        if self._deal.one_call is not None:
            self._deal.one_call.ragged = ragged

    def _take_back(self) -> None:
        """Give the array and its optimizers all that the steps have left in shards. None may be under way."""
        ran = self._deal.ran_python()
        if self._python.settle(ran) and ran:
            first, *others = self._deal.shards
            first.give_back(others)

    def _submit(self, step: SubmittedStep) -> None:
        """Begin a step, or run it: in the caller's thread, or alone there if it may need Python, which sees what the
        user changes before the next."""
        deal, dispatch = self._deal, self._dispatch
        if not dispatch.several:
            deal.run_alone(True)
            dispatch.submit(step, False)
            return
        deal.outside.check(dispatch.later and dispatch.threads.under_way)
        if any(one.follows for one in deal.captured) or not deal.replays(step.layout):
            deal.run_alone(True)
            dispatch.run_alone(step, spread=self._large and not deal.captured)
            if isinstance(step.error, CallOnce):
                return
            deal.note_done(step.layout)
            if self._later and deal.took_python():  # the user may read or set it before anything waits for the step
                self._python.carry_back()
            return
        deal.run_alone(not dispatch.later)
        live = dispatch.later and deal.reads_live(step.asked[1])
        if dispatch.later:  # the caller may write into its batch, but not into one that takes a gradient
            with torch_threads(1):  # of two, one would wait busily on a core of the shards' threads
                step.batch = own_copy(step.batch, leave=lambda tensor: tensor.requires_grad)
        dispatch.submit(step, True)
        if live:
            dispatch.threads.settle()
            deal.note_done(step.layout)

    def _audit(self, step: SubmittedStep) -> None:
        """Run a step in the caller's thread, replayed and eager from one state.

        Raises:
            StaleRecording: if they differ, and nothing is changed then.
        """
        deal, dispatch = self._deal, self._dispatch
        dispatch.threads.settle()  # steps before it are no audits
        deal.run_alone(True)
        deal.audit_next(True)
        try:
            dispatch.run_alone(step)
        finally:
            audits = deal.audit_next(False)
        stale = isinstance(step.error, StaleRecording)
        for audit in reversed(audits) if stale else ():
            audit.undo()
        if step.error is not None and (stale or not dispatch.several):
            dispatch.threads.wait(step)  # so that it is raised once
            if stale:
                self._discard(str(step.error))
            raise step.error
        self._audits.end(bool(audits) and all(audit.compared for audit in audits))
        deal.note_done(step.layout)

    def _discard(self, why: str) -> None:
        """Forget what was recorded, and record nothing until `refresh`."""
        self.synchronize()
        self._recordings.discard()
        self._forget()
        self._stale = why
        self._set_up(self._array, self._optimizers, self._widths)

    def _follow(self) -> None:
        """Divide the array into shards again if it (train or eval, frozen or not, hooks, other models), the optimizer
        or autocast has changed since the last step."""
        self._guards, self._steady = None, False
        known = self._modes.hold() and self._code.hold() and not self._updates.changed() and self._follow_memory()
        if not known or self._python.differing or self._python.outdated(self._recordings):
            self._set_up_anew(by_models=known and bool(self._python.differing), value=self._python.differing)
            return
        self._deal.look()
        if self._deal.outgrown:
            self._set_up_anew(by_models=True, value="code that the step reaches")
            return
        if self._python.changed():
            self._follow_python()
            return
        self._set_ups = 0
        every = Guards()
        for table in (self._modes, self._memory, self._code):
            every.table(table)
        parts = self._updates.table, self._deal, self._python
        self._guards = every if all(part.join(every) for part in parts) else None

    def _follow_memory(self) -> bool:
        """Let the shards use the memory that parameters have now; return False if they cannot."""
        if self._memory.hold():
            return True
        self._memory = guards.guard_addresses(Guards(), self._parameters)
        self._dispatch.threads.settle()
        return self._on_cpu and all(shard.take_memory() for shard in self._deal.shards)

    def _set_up_anew(self, by_models: bool, value: str = "") -> None:
        """Divide the array again; where the models' own code, or another `value` of a user's, asks for it in each step,
        no recording would ever serve: record none."""
        self.synchronize()
        self._recordings.edited()
        self._set_ups = self._set_ups + 1 if by_models else 0
        if not by_models:
            self._in_doubt = 0  # the caller has changed something, so that the warm-up begins again
        if self._set_ups < _RESTLESS or self._stale:
            self._set_up(self._array, self._optimizers, self._widths)
        else:
            what = value or "an object in their attributes"
            self._discard(f"the models are divided anew before each step, because {what} is another one in each step")
        self._updates.changed()  # has not looked at the hooks yet

    def _follow_python(self) -> None:
        """Copy Python values that have changed in the array's modules to the shards, or divide it again."""
        self.synchronize()
        try:
            changed = self._python.carry_over()
        except NotPlain as error:
            self._set_up_anew(by_models=True, value=str(error))
        else:
            self._set_ups = 0
            for captured in self._deal.captured:
                captured.python_changed(*changed)

    def _try(self, step: SubmittedStep) -> None:
        """Time one step alone, for the choice of a width or of a loop."""
        alone = not self._dispatch.later and self._widths.searching
        clock = time.thread_time if alone else time.perf_counter  # a busy neighbour does not decide
        begin = clock()
        self._submit(step)
        self.synchronize()
        eager = self._deal.itself and not self._deal.captured
        self._widths.add(clock() - begin, self.mode == "captured", eager)

    @property
    def width(self) -> int:
        """Models per shard of the next step."""
        return self.B if self._on_array or self._trusted is False else self._width_by(self._widths)

    @property
    def mode(self) -> str:
        """`captured`, `warming up`, or `eager: ` and the reason."""
        mode = self._way
        return mode + "; its models run in a loop" * bool(mode.startswith("eager") and self._loops)

    @property
    def _way(self) -> str:
        """The mode, without a word on loops."""
        if not self._capture:
            return "eager: capture=False"
        if not self._can_capture:
            return "eager: the array is neither on a CPU nor on one CUDA device"
        if self._stale:
            return f"eager: {self._stale}"
        return self._eager or self._deal.mode

    @property
    def _loops(self) -> bool | None:
        """True or False once it is known whether steps that cannot be captured run in a loop; None before."""
        return chosen_loop(self._array) if self._loop is None else self._loop

    @property
    def recordings(self) -> int:
        """Number of recordings that the models of the last step can be replayed with, each counted once if several
        shards share it; 0 if steps are eager. It grows when a batch of another layout, a new Python value or another
        path through the code makes a recording."""
        programs = (one.programs() for one in self._deal.captured)
        return 0 if self._way.startswith("eager") else len(set().union(*programs))

    @property
    def audits_passed(self) -> int:
        """Number of replayed steps that were run both ways, and left the same bits."""
        return self._audits.passed

    @property
    def settled(self) -> bool:
        """True once all choices are made (replay, models per shard, loop) and the first audit is past: from now on
        there is one audit in a hundred or a thousand steps."""
        if self.mode == "warming up" or self._widths.searching:
            return False
        if self.mode == "captured" and not self._audits.first_is_past:
            return False
        return self._dealt_width == self.width and self._loops is not None

    def refresh(self, array: torch.nn.Module | None = None, optimizer: Optimizers | None = None) -> None:
        """Divide the current array into shards again; `array` and `optimizer`, or those of all parts, replace the old
        ones.

        All recordings are discarded. You do not need it after dropping, adding or replacing models, switching train and
        eval, freezing, setting hooks or Python values of modules, or changing an optimizer's flags, groups or state. An
        error leaves the runner as it was.
        """
        if self._closed:
            raise InvalidArgument("this StepRunner is closed")
        given = self._optimizers if optimizer is None else optimizer
        optimizers, _, _ = in_parts(given, self._loss_functions, self._scalers)
        with interrupted_at_the_end():
            self.synchronize()
            self._recordings.discard()
            self._forget()
            self._set_up(self._array if array is None else array, optimizers, self._widths)

    def synchronize(self) -> None:
        """Wait until all requested steps are done, on a GPU too; raise the error of a failed step, if no call has
        raised it yet.

        Python values that a forward changes, such as a counter, are up to date in the array after it.
        """
        self._dispatch.threads.wait_for_all()
        self._take_back()
        if self._home.type == "cuda":
            torch.cuda.current_stream(self._home).synchronize()

    def _settle(self) -> bool:
        """Wait until no step is under way, before the array is read or changed; False if a step itself reads it."""
        done = self._dispatch.threads.settle()
        if done:
            self._take_back()
        return done or self._deal.itself

    def close(self) -> None:
        """Finish the requested steps, end the threads, and release the memory pool. May be called again.

        Raises:
            Exception: the error of a failed step, if no call has raised it yet; everything is closed nevertheless.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._dispatch.close()
            self._take_back()
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


def _is_small(array: torch.nn.Module) -> bool:
    return sum(p.nbytes for p in array.parameters()) <= _SMALL_BYTES
