# SPDX-License-Identifier: MIT
"""Models per shard of a StepRunner, and whether they run in a loop: as asked, or as trials on the first steps find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .._fuse import asks_for_numbers, run_in_a_loop, state_bytes
from .._fuse import width as array_width
from .choices import loop_key, shares_products, width_trial, widths_by_layout
from .layout_widths import LayoutWidths
from .loop_trial import LoopTrial
from .shard_width_search import WidthTrial

__all__ = ["Asked", "ShardWidths"]


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
        self._cannot: dict[str, str] = (
            {} if before is None else before._cannot
        )  # be captured: arrays, and why
        same = before if before is not None and before._array is array else None
        self._layouts = self._widths_by_layout(same)
        self.width, self._trial = self._choose(same)
        self._loop_trial: LoopTrial | None = None
        self.parted: bool = (
            same is not None and same.parted
        )  # each model has a shard, as they go different ways
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
