# SPDX-License-Identifier: MIT
"""Models per shard of a StepRunner, and whether they run in a loop: as asked, or as trials on the first steps find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import _tune as tune
from .._fuse import asks_for_numbers, run_in_a_loop, state_bytes
from .._fuse import width as array_width
from ..nn.sharing import is_shared
from .batches import opened
from .capture import guards


@dataclass(frozen=True)
class Asked:
    """Arguments of a StepRunner that its shards depend on; `width` is None where trials shall find it."""

    width: int | None
    threads: int
    capture: bool
    on_cpu: bool


class ShardWidths:
    """Width of the shards of one array: the user's number, one found before an edit, or one that trials find.

    `follow` says before each step how it shall run; `add` and `add_of_loop` take the time of a step that is a trial.
    """

    def __init__(self, array: torch.nn.Module, asked: Asked, before: ShardWidths | None = None) -> None:
        """`before` are those of the same runner before an edit, or of another array."""
        self._array, self._asked, self.models = array, asked, array_width(array)
        self._wide = -(-self.models // min(asked.threads, self.models))
        self._cannot: dict[str, str] = {} if before is None else before._cannot  # be captured: arrays, and why
        same = before if before is not None and before._array is array else None
        self._layouts = self._widths_by_layout(same)
        self.width, self._trial = self._choose(same)
        self._loop_trial: LoopTrial | None = None
        if same is not None and same.models == self.models:  # trials go on
            self._loop_trial = same._loop_trial
        self.parted: bool = same is not None and same.parted  # each model has a shard, as they go different ways
        self._key = loop_key(array, self.models, asked.threads, asked.capture)

    def _widths_by_layout(self, before: ShardWidths | None) -> LayoutWidths | None:
        """Make the trials of widths by layout, for an array that shares state; widths found before an edit are kept."""
        asked = self._asked
        if not asked.on_cpu or asked.width is not None or not shares_products(self._array):
            return None
        if before is not None and before._layouts is not None:
            return before._layouts.after_edit(self.models)
        return widths_by_layout(self._array, self.models, asked.threads, asked.capture)

    def _choose(self, before: ShardWidths | None) -> tuple[int, WidthTrial | None]:
        """Choose the models per shard: the user's number, the one found for this array before an edit, or a trial."""
        asked = self._asked
        if not asked.on_cpu or asked.width is not None:
            return min(asked.width or self.models, self.models), None
        if before is not None and before._trial is not None and before._trial.done:
            return 1 if before.width == 1 else self._wide, before._trial
        if before is not None and before._trial is not None and before.models == self.models:
            return before.width, before._trial
        if self._layouts is not None:  # until the layout of a batch is seen
            return self._wide, None
        if state_bytes(self._array).shared:  # each shard would compute again what its models share
            return self._wide, None
        trial = width_trial(self._array, self.models, asked.threads, asked.capture)
        return trial.width, trial

    def follow(
        self, batch: Any, mode: Callable[[], str], parted: bool = False
    ) -> tuple[WidthTrial | LoopTrial | None, bool]:
        """Choose how the next step runs: return the trial that wants its time, and True if it is one of a loop.

        Args:
            batch: the step's; None for one whose models differ in size, which run one by one and are no trial.
            mode: returns the runner's mode.
            parted: the models of a shard go different ways, each of which is recorded.
        """
        if parted:
            self._part()
        timed = batch is not None and self._follow_layout(batch)
        loop_trial = self._trial_of_a_loop(mode)
        loop = loop_trial is not None and loop_trial.loop
        if timed and self._trial is not None and not self._trial.done:
            return self._trial, loop
        if batch is not None and loop_trial is not None and not loop_trial.done:
            return loop_trial, loop
        return None, loop

    def _follow_layout(self, batch: Any) -> bool:
        """Take the width for the layout of a batch, where it counts; return True if the step may be timed."""
        if self._layouts is None:
            return True
        if self._loop_trial is not None:
            return False  # it has taken over
        self._trial, known = self._layouts.follow(batch)
        self.width = self._trial.width
        return known

    def _trial_of_a_loop(self, mode: Callable[[], str]) -> LoopTrial | None:
        """Return the comparison with a loop; None while steps are captured, or may yet be."""
        if self._loop_trial is None and self._asked.on_cpu and not self.searching:
            if self._key not in self._cannot and mode().startswith("eager"):
                self._cannot[self._key] = mode()
            if self._key in self._cannot:
                self._loop_trial = LoopTrial(self._key, self.width, self._wide)
                if self._asked.width is not None:  # who gives a width gets the same bits in each run
                    self._loop_trial.settle(asks_for_numbers(self._array), "", self.width)
                self._follow_loop_trial(self._loop_trial)
        return self._loop_trial

    def _part(self) -> None:
        """Give each model a shard of its own, unless the user has asked for a width."""
        if self._asked.width is None and self.width > 1 and self._loop_trial is None:
            self._layouts = None
            if self._trial is not None:
                self._trial.take(1)
            self.width, self.parted = 1, True

    def add(self, seconds: float, captured: bool) -> None:
        """Take the time of a step that a search for a width has asked for."""
        assert self._trial is not None
        self._trial.add(seconds, captured)
        self.width = self._trial.width

    def add_of_loop(self, seconds: float, running: bool) -> None:
        """Take the time of a step that the comparison with a loop has asked for; `running`: the models run in one."""
        assert self._loop_trial is not None
        self._loop_trial.add(seconds, self.models / min(self._asked.threads, self.models), running)
        self._follow_loop_trial(self._loop_trial)

    def _follow_loop_trial(self, trial: LoopTrial) -> None:
        self.width = trial.width
        if trial.done:
            run_in_a_loop(self._array, None, trial.why)

    @property
    def steady(self) -> bool:
        """True if `follow` has nothing to choose for a replayed step on a batch of the last layout."""
        return self._layouts is None and self._loop_trial is None and not self.searching

    @property
    def searching(self) -> bool:
        """True while a search for a width is under way."""
        return self._trial is not None and not self._trial.done

    @property
    def in_a_loop(self) -> bool | None:
        """True or False once it is chosen whether steps that cannot be captured run in a loop; None before."""
        trial = self._loop_trial
        return trial.loop if trial is not None and trial.done else None

    @property
    def refusal(self) -> str:
        """Mode of the steps before they ran in a loop: why they cannot be captured."""
        return self._cannot[self._key]


_TRIAL_STEPS = 2  # timed steps of each candidate width, after those that warm up
# A model that keeps a core busy for so long gains nothing from sharing calls with others, and alone its
# activations are the only ones of its thread: its width is one, without a trial of wider shards, whose memory would be
# the peak. A captured step of 3 ms is no faster eight models wide; where Python makes the calls, tens of milliseconds
# may be Python's.
_HEAVY_STEP_S = {True: 0.002, False: 0.5}
# A captured step of less time per model is as fast as calls of operators: one model at a time makes more of them.
_LIGHT_STEP_S = 0.0002


class WidthTrial:
    """Find the fastest width from the times of training steps.

    Run each step with `width` models per shard and give its time to `add`, until `done`. The choice is kept
    under `key` and not tried again.
    """

    def __init__(
        self, B: int, threads: int, key: str, untimed: int = 1, widest_first: bool = False, settle_heavy: bool = True
    ) -> None:
        """Up to `untimed` first steps of each width warm up: allocations, and the capture of the step. Small models
        begin with the `widest_first`, because a step of few of them is mostly Python. With `settle_heavy`, heavy models
        run one by one without a trial."""
        threads = min(threads, B)
        self.candidates = sorted({1, -(-B // threads)}, reverse=widest_first)
        self.width = self.candidates[0]
        self.done = len(self.candidates) == 1
        self._key, self._untimed = key, untimed
        self._warming_up = untimed
        self._settle_heavy = settle_heavy
        self._models_per_core = B / threads
        self._seconds: dict[int, list[float]] = {candidate: [] for candidate in self.candidates}
        known = None if self.done else tune.table().get(key)
        if known in self.candidates:
            self.width, self.done = known, True

    def add(self, seconds: float, captured: bool = False) -> None:
        """Add the time of a step at `width`, `captured` or run by Python; set the width of the next."""
        if self._warming_up:
            self._warming_up = 0 if captured else self._warming_up - 1
            return
        mine = self._seconds[self.width]
        mine.append(seconds)
        if self._settle_heavy and seconds / self._models_per_core > _HEAVY_STEP_S[captured]:
            self._settle(1)
        elif captured and self.width > 1 and seconds / self._models_per_core < _LIGHT_STEP_S:
            self._settle(self.width)
        elif len(mine) >= _TRIAL_STEPS:
            left = [candidate for candidate in self.candidates if not self._seconds[candidate]]
            if left:
                self.width, self._warming_up = left[0], self._untimed
            else:
                self._settle(min(self.candidates, key=lambda candidate: min(self._seconds[candidate])))

    def take(self, width: int) -> None:
        """Settle a width without a trial."""
        self.width, self.done = width, True

    def _settle(self, width: int) -> None:
        self.take(width)
        tune.table().put(self._key, width)


Layout = tuple[tuple[bool, int], ...]
_IN_A_ROW = 2  # batches of another layout before it is followed: a smaller one at the end of an epoch is not


class LayoutWidths:
    """Trials of widths, one for each layout of batch; `follow` chooses the one for a step."""

    def __init__(self, B: int, threads: int, key: tuple[Any, ...], untimed: int) -> None:
        """`key` identifies the array; `untimed` is an argument of `WidthTrial`."""
        self.B, self._threads, self._key, self._untimed = B, threads, key, untimed
        self._trials: dict[Layout, WidthTrial] = {}
        self._known: dict[Layout, bool] = {}  # whether one model at a time was the faster way before an edit
        self._now: Layout | None = None
        self._next: Layout | None = None
        self._came = 0

    def after_edit(self, B: int) -> LayoutWidths:
        """Return the widths for the array with `B` models, without a new measurement."""
        other = LayoutWidths(B, self._threads, self._key, self._untimed)
        other._known = {**self._known, **{k: t.width == 1 for k, t in self._trials.items() if t.done}}
        return other

    def follow(self, batch: Any) -> tuple[WidthTrial, bool]:
        """Return the trial that decides a step of `batch`, and True if the step has its layout."""
        layout = layout_of(batch)
        if layout == self._now:
            self._next = None
        else:
            self._came = self._came + 1 if layout == self._next else 1
            self._next = layout
            if self._now is None or self._came >= _IN_A_ROW:
                self._now = layout
        assert self._now is not None
        trial = self._trials.get(self._now)
        if trial is None:
            trial = self._trials[self._now] = self._trial(self._now)
        return trial, layout == self._now

    def _trial(self, layout: Layout) -> WidthTrial:
        key = tune.key("width of steps that share", *self._key, layout, self.B, self._threads)
        trial = WidthTrial(self.B, self._threads, key, self._untimed, widest_first=True, settle_heavy=False)
        shared, own = (sum(2**size for of_all, size in layout if of_all is kind) for kind in (True, False))
        if layout in self._known:
            trial.take(min(trial.candidates) if self._known[layout] else max(trial.candidates))
        elif shared > own:
            trial.take(max(trial.candidates))
        return trial


def layout_of(batch: Any) -> Layout:
    """Describe a batch by its tensors: (shared by all models, bits of the number of a model's elements)."""
    if isinstance(batch, torch.Tensor):
        models = max(1, batch.size(0))
        return ((models > 1 and batch.stride(0) == 0, (batch.numel() // models).bit_length()),)
    found = None if isinstance(batch, (tuple, list)) else opened(batch)
    parts: Sequence[Any] = batch if isinstance(batch, (tuple, list)) else () if found is None else found[1]
    return tuple(one for part in parts for one in layout_of(part))


_CAPTURE_STEPS = 4  # of a new shard until it is replayed for the second time
_LIGHT_BYTES = 2**22  # of parameters: less is mostly overhead, and its activations are small


def width_trial(array: torch.nn.Module, B: int, threads: int, capture: bool) -> WidthTrial:
    """Begin the search for the number of models per shard."""
    shapes = [list(p.shape[1:]) for p in array.parameters()]
    how = "width of captured steps" if capture else "width of steps"
    key = tune.key(how, type(array).__name__, shapes, B, threads)
    light = sum(p.numel() * p.element_size() for p in array.parameters()) <= _LIGHT_BYTES
    return WidthTrial(B, threads, key, _CAPTURE_STEPS if capture else 1, light)


def shares_products(array: torch.nn.Module) -> bool:
    """Return True for an array that shares state other than filters. A convolution of another number of images may
    round differently, so with shared filters the width must not depend on timings."""
    shared = [p for p in array.parameters() if is_shared(p)]
    return bool(shared) and all(p.dim() <= 3 for p in shared)


def widths_by_layout(array: torch.nn.Module, B: int, threads: int, capture: bool) -> LayoutWidths:
    """Begin this search for an array that shares state, one for each layout of a batch."""
    return LayoutWidths(B, threads, (*_described(array), capture), _CAPTURE_STEPS if capture else 1)


def loop_key(array: torch.nn.Module, B: int, threads: int, capture: bool) -> str:
    """Key of the choice between a step for all models and a loop over them."""
    return tune.key("loop of steps", *_described(array), capture, B, threads)


def _described(array: torch.nn.Module) -> tuple[Any, ...]:
    """List the modules of an array and the shapes of its parameters."""
    modules = [type(module).__qualname__ for _, module in guards.modules_of(array)]
    return modules, [list(p.shape[1:]) for p in array.parameters()]


_UNTIMED, _TIMED = 1, 2  # steps of each way
_LEVEL = 0.97  # the loop must take less than this share of the other's time
_HEAVY_LOOP_S = 0.005  # a model whose loop gains nothing from a shard of many: its activations alone are kept


class LoopTrial:
    """Compare steps as they are with steps of a loop, each in shards of its own width.

    Run each step with `width` models per shard, and in a loop if `loop`; give its time to `add` until `done`. The
    choice is kept under `key`.
    """

    def __init__(self, key: str, width: int, wide: int) -> None:
        """`width` is the number of models per shard of fused steps; the loop's shards have `wide` models unless they
        are heavy."""
        self.loop, self.done, self.why = False, False, ""
        self.width, self._fused_width, self._wide = width, width, wide
        self._key, self._seconds = key, {False: list[float](), True: list[float]()}
        known = tune.table().get(key)
        if isinstance(known, list):
            self.settle(known[0], known[1], wide if known[2] else width)

    def add(self, seconds: float, models_per_core: float, loops: bool) -> None:
        """Take the time of a step; `loops` is False if the models cannot run in a loop."""
        mine = self._seconds[self.loop]
        mine.append(seconds)
        if self.loop and not loops:
            self.settle(False, "", self._fused_width)
        elif len(mine) < _UNTIMED + _TIMED:
            return
        elif not self.loop:
            self.loop = True
            self.width = self._fused_width if seconds / models_per_core > _HEAVY_LOOP_S else self._wide
        else:
            self._decide()

    def _decide(self) -> None:
        fused_s, loop_s = (min(self._seconds[way][_UNTIMED:]) for way in (False, True))
        loop = loop_s < _LEVEL * fused_s
        why = f"a step of a loop over the models takes {1e3 * loop_s:.3g} ms, else {1e3 * fused_s:.3g} ms"
        wide = self.width == self._wide
        tune.table().put(self._key, [loop, why, wide])
        self.settle(loop, why, self.width if loop else self._fused_width)

    def settle(self, loop: bool, why: str, width: int) -> None:
        """Settle the choice; `width` is the number of models per shard of the loop."""
        self.loop, self.done, self.why = loop, True, why if loop else ""
        self.width = width if loop else self._fused_width
