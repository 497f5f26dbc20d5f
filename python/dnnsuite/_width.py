# SPDX-License-Identifier: MIT
"""How many models of an array share a thread's step: one by one, or as many as keep every thread busy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import _tune

if TYPE_CHECKING:
    from ._step import Step, StepRunner

_TRIAL_STEPS = 2  # timed steps of each candidate width, after one that warms up
# A model that keeps a core busy for so long gains nothing from sharing calls with others, and alone its activations are
# the only ones of its thread: its width is one, without a trial of wider shards.
_HEAVY_STEP_S = 0.02


class WidthTrial:
    """Finds the fastest models-per-shard on the first training steps, which it runs one at a time."""

    def __init__(self, runner: StepRunner, candidates: list[int]) -> None:
        self._runner, self.candidates = runner, candidates
        self._seconds: dict[int, list[float]] = {candidate: [] for candidate in candidates}

    @classmethod
    def of(cls, runner: StepRunner) -> WidthTrial | None:
        """None where there is nothing to choose, or the choice is known."""
        candidates = _widths(runner.B, runner.threads)
        if len(candidates) == 1 or _tune.table().get(_key(runner)) in candidates:
            return None
        return cls(runner, candidates)

    def step(self, step: Step) -> Step:
        runner = self._runner
        begin = time.perf_counter()
        runner._submit(step)
        runner.synchronize()
        seconds = self._seconds[runner.width]
        seconds.append(time.perf_counter() - begin)
        core_s = seconds[-1] * min(runner.threads, runner.B) / runner.B  # a core's time for one model
        if len(seconds) > _TRIAL_STEPS:
            self._move_on()
        elif len(seconds) > 1 and runner.width == 1 and core_s > _HEAVY_STEP_S:
            self._settle(1)
        return step

    def _move_on(self) -> None:
        left = [candidate for candidate in self.candidates if not self._seconds[candidate]]
        if left:
            self._runner.width = left[0]
            self._runner._deal()
        else:
            self._settle(min(self.candidates, key=lambda candidate: min(self._seconds[candidate][1:])))

    def _settle(self, width: int) -> None:
        runner = self._runner
        if width != runner.width:
            runner.width = width
            runner._deal()
        _tune.table().put(_key(runner), width)
        runner._trial = None


def known(runner: StepRunner) -> int:
    """The width to begin with where there is nothing to try."""
    candidates = _widths(runner.B, runner.threads)
    return candidates[0] if len(candidates) == 1 else int(_tune.table().get(_key(runner)))


def _widths(B: int, threads: int) -> list[int]:
    """Models per shard worth trying: one, and as many as keep every thread busy."""
    return sorted({1, -(-B // min(threads, B))})


def _key(runner: StepRunner) -> str:
    shapes = [list(p.shape[1:]) for p in runner._array.parameters()]
    return _tune.key("step width", type(runner._array).__name__, shapes, runner.B, runner.threads)
