# SPDX-License-Identifier: MIT
"""Choices of a StepRunner by trials in its steps: which thread runs a step, and how many models are in a shard.

Threads pay only for steps that are longer than handing them over takes, so both ways are timed. A step that may run
Python always runs in the caller's thread, where no other step is under way. The models per shard are as asked, as
products that models share need, or as trials of first steps find.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .._fuse import state_bytes
from .._fuse import width as array_width
from .._ways import Trial, key_of
from ..nn.sharing import is_shared
from .arguments import opened
from .capture import guards
from .threads import ShardThreads, SubmittedStep

_STEPS = 8  # of a block, which is timed as a whole: the threads work on a step while its caller makes the next batch
_BLOCKS = 3  # of each way
_LONGEST_S = 0.002  # a step of more time is worth a thread
_LONG_STEPS = 3  # in a row in the caller's thread, until the threads are tried again
_GAIN = 0.95  # of the threads' time that the caller's thread may take

_TIMED = 3  # steps of each way in a trial, after those that warm up: to turn back to a width costs more
_UNTIMED = {True: 4, False: 1}  # of a new width: a captured step is replayed for the second time then
# A model that keeps a core busy for so long gains nothing from sharing calls with others, and alone its
# activations are the only ones of its thread: its width is one, without a trial of wider shards, whose memory would be
# the peak. Where Python makes the calls, even tens of milliseconds may be Python's.
_HEAVY_STEP_S = {True: 0.05, False: 0.5}
# A captured step of less time per model is as fast as calls of operators: one model at a time makes more of them.
_LIGHT_STEP_S = 0.0002
_LIGHT_BYTES = 2**22  # of parameters: less is mostly overhead, and its activations are small
# Rows from which on a product that models share gains nothing from more of them, while activations leave the caches.
# LoRA on small language models was at most 3 % slower by this than by the best width, for sequences of any length.
# Steps that Python runs do so for each shard, and gain from more.
_ENOUGH_ROWS = {True: 1024, False: 4096}
_IN_A_ROW = 2  # batches of another layout before it is followed: a smaller one at the end of an epoch is not

Layout = tuple[tuple[bool, int], ...]


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


@dataclass(frozen=True)
class Asked:
    """Arguments of a StepRunner that its shards depend on; `width` is None where trials shall find it."""

    width: int | None
    threads: int
    capture: bool
    on_cpu: bool


class ShardWidths:
    """Width of the shards of one array: the user's number, one found before an edit, or one for each layout of a batch.

    Models that share products are as many to a shard as give these products enough rows: to record a large model's
    step for several widths would cost more than the best of them gains. For others trials tell: one model per shard is
    tried, 2, 4 and so on, or as many as keep all threads busy, half of them and so on, while each is faster than the
    one before. `follow` says before each step how it shall run; `add` takes the time of a step that is one of a trial.
    """

    def __init__(self, array: torch.nn.Module, asked: Asked, before: ShardWidths | None = None) -> None:
        """`before` are those of the same runner before an edit, or of another array."""
        self._array, self._asked, self.models = array, asked, array_width(array)
        searched = asked.on_cpu and asked.width is None
        self._shares = searched and _shares_products(array)
        #: No trial: the user has said it, or each shard would compute again what its models share.
        self._fixed = not searched or (not self._shares and bool(state_bytes(array).shared))
        self._kind = self._shares, self._fixed
        same = before if before is not None and before._array is array else None
        if same is not None and (same.models, same._kind) == (self.models, self._kind):
            vars(self).update(vars(same))  # trials go on
            return
        threads = min(asked.threads, self.models)
        self._wide, self._models_per_core = -(-self.models // threads), self.models / threads
        self._facts = *_described(array), asked.capture, self.models, asked.threads
        self._trials: dict[Layout, Trial[int]] = {}
        self._rows: dict[Layout | None, int] = {}  # of one model's products, where models share them
        #: Widths that were the fastest before an edit; None for as many models as keep all threads busy.
        self._before: dict[Layout, int | None] = {} if same is None else same._found()
        self._layout: Layout | None = None  # that is followed
        self._next: Layout | None = None  # of the last batch, if it is another one
        self._came = 0  # batches of that in a row
        self.parted: bool = same is not None and same.parted  # each model has a shard, as they go different ways
        self.width = self._wide if searched else min(asked.width or self.models, self.models)
        if not self._fixed:
            self._order = self._widths()
            self.width = self._order[0]
            if same is not None and same._layout is not None:
                self._follow_layout(same._layout)

    def _found(self) -> dict[Layout, int | None]:
        done = {layout: trial.now for layout, trial in self._trials.items() if trial.done}
        return self._before | {layout: None if width == self._wide else width for layout, width in done.items()}

    def follow(self, batch: Any, parted: bool = False) -> bool:
        """Choose the width of the next step; return True if `add` wants its time.

        Args:
            batch: the step's; None for one whose models differ in size, which run one by one and are no trial.
            parted: the models of a shard go different ways, each of which is recorded.
        """
        if parted:
            self._part()
        timed = batch is not None
        if timed and not self._fixed:
            timed = self._follow_layout(layout_of(batch), batch)
        return timed and self.searching

    def begin_narrow(self) -> None:
        """Begin searches with one model, as they run one by one: in a wide shard each operator is recorded once for
        each model."""
        if not self._shares and self._asked.capture and self._order[0] > 1:
            self._order.sort()
            self._trials = {layout: trial for layout, trial in self._trials.items() if trial.done}

    def _follow_layout(self, layout: Layout, batch: Any = ()) -> bool:
        """Take the width for the layout of a batch; return True if the step may be timed."""
        if layout == self._layout:
            self._next = None
        else:
            self._came = self._came + 1 if layout == self._next else 1
            self._next = layout
            if self._layout is None or self._came >= _IN_A_ROW:
                self._layout = layout
        assert self._layout is not None
        if self._layout not in self._trials:
            self._trials[self._layout] = self._new_trial(self._layout, batch)
        self.width = self._trials[self._layout].now
        return layout == self._layout

    def _widths(self) -> list[int]:
        """List the widths in the order in which they are tried. Small models begin with the widest, because a step of
        few of them is mostly Python."""
        small = sum(p.numel() * p.element_size() for p in self._array.parameters()) <= _LIGHT_BYTES
        fewer = {2**n for n in range(self._wide.bit_length())}
        return sorted({*fewer, self._wide}, reverse=self._shares or small)

    def _new_trial(self, layout: Layout, batch: Any) -> Trial[int]:
        """Begin the search of a width, or end it where it is known."""
        key = None if self._shares else key_of("width of steps", *self._facts, layout)
        untimed = _UNTIMED[self._asked.capture]
        trial = Trial(self._order, key, timed=_TIMED, untimed=untimed, climbs=True)
        if layout in self._before:
            trial.settle(min(self._before[layout] or self._wide, self._wide))
        elif self._shares:
            owns = (_rows_of(tensor) for tensor in _tensors_in(batch) if not _is_of_all(tensor))
            self._rows[layout] = rows = max(owns, default=1)
            most = _ENOUGH_ROWS[self._asked.capture]
            trial.settle(max(width for width in self._order if width == 1 or width * rows <= most))
        return trial

    @property
    def _trial(self) -> Trial[int] | None:
        return None if self._layout is None else self._trials.get(self._layout)

    def _part(self) -> None:
        """Give each model a shard of its own, unless the user has asked for a width."""
        if self._asked.width is None and self.width > 1:
            if self._trial is not None:
                self._trial.settle(1)
            self._fixed, self._shares, self.width, self.parted = True, False, 1, True

    @property
    def whole_if_eager(self) -> bool:
        """True if eager steps take all models at once; False where the user wants fewer, and for heavy models, whose
        activations would be the peak of memory."""
        if self._asked.width is not None:
            return self._asked.width >= self.models
        trial = self._trial
        if self._layout in self._rows:
            return self._wide * self._rows[self._layout] <= _ENOUGH_ROWS[False]
        return trial is None or not (trial.done and any(map(self._is_heavy, map(trial.least, trial.ways))))

    def _is_heavy(self, seconds: float) -> bool:
        return seconds / self._models_per_core > _HEAVY_STEP_S[False]

    def add(self, seconds: float, captured: bool, eager: bool = False) -> None:
        """Take the time of a step of which `follow` wants it. The search ends with a heavy or a light model.

        Args:
            captured: True for a step that was replayed.
            eager: True for one of all models at once that cannot be captured, as none after it.
        """
        trial, of_model = self._trial, seconds / self._models_per_core
        assert trial is not None
        width = trial.now
        if trial.add(seconds, warm=captured) and not trial.done:
            if eager:
                trial.settle(1 if self._is_heavy(seconds) else self._wide)
            elif of_model > _HEAVY_STEP_S[captured]:
                trial.settle(1, keep=True)
            elif captured and width == self._order[0] > 1 and of_model < _LIGHT_STEP_S:
                trial.settle(width, keep=True)
        self.width = trial.now

    @property
    def steady(self) -> bool:
        """True if `follow` has nothing to choose for a replayed step on a batch of the last layout."""
        return self._next is None and not self.searching

    @property
    def searching(self) -> bool:
        """True while a search for a width is under way, or yet to begin."""
        trial = self._trial
        return not self._fixed and (len(self._order) > 1 if trial is None else not trial.done)


def layout_of(batch: Any) -> Layout:
    """Describe a batch by its tensors: (shared by all models, bits of the number of a model's elements)."""
    return tuple((_is_of_all(one), (one.numel() // max(1, one.size(0))).bit_length()) for one in _tensors_in(batch))


def _tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
        return
    found = None if isinstance(batch, (tuple, list)) else opened(batch)
    for part in batch if isinstance(batch, (tuple, list)) else () if found is None else found[1]:
        yield from _tensors_in(part)


def _is_of_all(tensor: torch.Tensor) -> bool:
    """Return True for a tensor `[B, ...]` that all models share."""
    return tensor.size(0) > 1 and tensor.stride(0) == 0


def _rows_of(tensor: torch.Tensor) -> int:
    """Estimate the rows of one model's products on a tensor `[B, ...]`: its tokens, or its samples with features."""
    return math.prod((tensor.shape[1:-1] if tensor.is_floating_point() else tensor.shape[1:])[:2])


def _shares_products(array: torch.nn.Module) -> bool:
    """Return True for an array that shares state other than filters. A convolution of another number of images may
    round differently, so with shared filters the width must not depend on timings."""
    shared = [p for p in array.parameters() if is_shared(p)]
    return bool(shared) and all(p.dim() <= 3 for p in shared)


def _described(array: torch.nn.Module) -> tuple[Any, ...]:
    """List the modules of an array and the shapes of its parameters."""
    modules = [type(module).__qualname__ for _, module in guards.modules_of(array)]
    return modules, [list(p.shape[1:]) for p in array.parameters()]
