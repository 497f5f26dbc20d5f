# SPDX-License-Identifier: MIT
"""Overhead of the instruments: steps of the same loop with them against neighbouring steps without."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from ..timing import batch_means, student_t
from ._windows import LoopStep, Phase

DEFINITION = (
    "wall time of steps with instruments over that of the neighbouring steps without, less one; "
    "95 % interval by Student's t over the windows, of one window over its steps"
)

_NARROW_PCT = 5.0


@dataclass(frozen=True)
class Overhead:
    """Relative increase of a step's time under the instruments, in percent, with a 95 % interval."""

    pct: float
    low_pct: float
    high_pct: float
    windows: int
    steps_on: int
    steps_off: int

    @property
    def resolved(self) -> bool:
        """True if the interval excludes 0, or lies within 5 percentage points of it."""
        if not math.isfinite(self.low_pct):
            return False
        return self.low_pct > 0 or self.high_pct < 0 or max(-self.low_pct, self.high_pct) <= _NARROW_PCT

    def __str__(self) -> str:
        n = f"{self.steps_on} steps with and {self.steps_off} without, {self.windows} windows"
        if self.resolved:
            return f"{self.pct:+.1f} % [{self.low_pct:+.1f}, {self.high_pct:+.1f}] per step ({n})"
        known = f"between {self.low_pct:+.0f} and {self.high_pct:+.0f} %" if math.isfinite(self.low_pct) else "unknown"
        return f"not resolved: {known} per step ({n}); observe more iterations to know it"


def overhead(steps: Sequence[LoopStep], skip: int = 0) -> Overhead | None:
    """Compute the cost of the instruments from steps in order; None if there is nothing to compare.

    Each window is compared with the steps without instruments right before and after it, so that a drift of the machine
    cancels. Warm-up steps and the first `skip` steps of the loop (its own warm-up) are left out.
    """
    blocks = [
        (phase, [float(step.t1_ns - step.t0_ns) for step in group])
        for phase, group in itertools.groupby((s for s in steps if s.step >= skip), key=lambda s: s.phase)
    ]
    pairs = []
    for index, (phase, on) in enumerate(blocks):
        if phase != Phase.ACTIVE.value:
            continue
        around = [_nearest(blocks[:index][::-1]), _nearest(blocks[index + 1 :])]
        off = [lengths for lengths in around if lengths]
        if off:
            pairs.append((on, off))
    if not pairs:
        return None
    # Of sums: a step that returns before it is done is paid for by the last of its block, which waits.
    differences = [math.log(fmean(on)) - fmean([math.log(fmean(ns)) for ns in off]) for on, off in pairs]
    centre = fmean(differences)
    half = _half_of_steps(*pairs[0])
    if len(pairs) > 1:
        interval = batch_means(differences, batches=len(pairs), independent=True, may_be_negative=True)
        half = (interval.high - interval.low) / 2
    low, high = centre - half, centre + half
    offs = sum(phase == Phase.OFF.value for phase, lengths in blocks for _ in lengths)
    pct, low_pct, high_pct = (100 * math.expm1(value) for value in (centre, low, high))
    return Overhead(pct, low_pct, high_pct, len(pairs), sum(len(on) for on, _ in pairs), offs)


def _nearest(blocks: Sequence[tuple[str, list[float]]]) -> list[float] | None:
    """Find the first block without instruments, unless another window comes first."""
    for phase, lengths in blocks:
        if phase == Phase.OFF.value:
            return lengths
        if phase == Phase.ACTIVE.value:
            return None
    return None


def _half_of_steps(on: list[float], off: list[list[float]]) -> float:
    """Compute the half-width of Welch's interval for the difference of mean logarithms; NaN if a side has one step."""
    sides = [[math.log(ns) for ns in side] for side in (on, [ns for each in off for ns in each])]
    if min(map(len, sides)) < 2:
        return math.nan
    squares = [variance(side) / len(side) for side in sides]
    total = sum(squares)
    if total == 0.0:
        return 0.0
    freedom = total**2 / sum(square**2 / (len(side) - 1) for square, side in zip(squares, sides, strict=True))
    return student_t(0.95, max(1.0, freedom)) * math.sqrt(total)
