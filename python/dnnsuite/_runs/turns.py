# SPDX-License-Identifier: MIT
"""Ways to train that take turns in short blocks, and ratios of rates that are compared within a round.

A machine with neighbours changes its speed from second to second. Rates of runs that follow each other differ by what
the machine did meanwhile; rates of blocks of one round hardly do. So in each round every way has one block, in a fresh
random order, and a way's rate is divided by the baseline's of the same round. Blocks are short: a host that switches
between speeds within seconds changes the ratio of two blocks alike, however long they are, so that many short ones tell
more than a few long ones. Blocks beside which others used the cores are left out, whatever their rates were: the choice
does not look at the rates. The kernel counts in ticks, which are too coarse for a short block, so neighbouring blocks
are judged together. Rounds are made until each ratio is known well enough, or the budget is spent.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np

from .. import timing
from .._shown import percent
from ..errors import InvalidArgument

Key = TypeVar("Key", bound=Hashable)

BUSY = "the machine was busy: "  # how a reason begins
_DISTURBED = 0.2  # share of blocks from which on the disturbed ones are why a quantity is not known better
FEWEST_PAIRS = 8  # of undisturbed blocks, below which nothing is said of an interval
_TRIMMED = 0.1  # of the values at each end: what the watch of the cores did not see
_95_PERCENT = 0.95
_STRETCH_S = 0.25  # of neighbouring blocks, which are judged together
# Times as many rounds as at the last look: an interval that is looked at in each is found too narrow.
_LOOK_AGAIN = 1.25


@dataclass(frozen=True)
class Block:
    """One turn of one way.

    Attributes:
        rate: items per second; NaN where the workers of a way were never active at the same time.
        disturbed: cause of a disturbance; empty if there was none.
    """

    rate: float
    disturbed: str = ""


@dataclass(frozen=True)
class Goal:
    """Goal of a measurement, and its limits.

    Attributes:
        half_width: half width of a ratio's 95 % interval, relative, at which it is known well enough.
        rough: half width up to which a ratio is told at all; beyond it the measurement is inconclusive.
        budget_s: seconds after which no further round begins.
        rounds: number of rounds that are made whatever is known; None: until the goal or the budget is reached.
        floor: half width, relative, of what no further round shows: two starts of one program differ by it, and
            neighbours change what caches and memory give.
    """

    half_width: float = 0.05
    rough: float = 0.15
    budget_s: float = 60.0
    rounds: int | None = None
    floor: float = 0.015

    def __post_init__(self) -> None:
        if not 0 < self.half_width < 1 or not self.budget_s > 0:
            raise InvalidArgument(
                f"a goal of {self.half_width} within {self.budget_s} s: the goal is a fraction, e.g. 0.05, and the "
                "budget is in seconds"
            )

    def verdict(self, found: Known) -> str:
        """Judge what is known: `ok`, `rough` or `inconclusive`."""
        if not found.half_width <= max(self.rough, self.half_width):  # also if it is NaN
            return "inconclusive"
        return "ok" if found.half_width <= self.half_width else "rough"


@dataclass(frozen=True)
class Known:
    """A positive quantity with its 95 % interval; NaN where it is not known.

    Attributes:
        pairs: undisturbed blocks that it is from.
        rounds: blocks that were made.
        why: reason that there is no interval.
        disturbed: cause of the others' disturbance; empty if there was none.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    pairs: int = 0
    rounds: int = 0
    why: str = ""
    disturbed: str = ""

    @property
    def half_width(self) -> float:
        """Relative half width: the further of both ends."""
        return max(self.high / self.value, self.value / self.low) - 1

    def reason(self) -> str:
        """Say in words why it is not known better: a block or two that others disturbed are no reason."""
        if self.disturbed and self.rounds - self.pairs >= max(2, _DISTURBED * self.rounds):
            return f"{BUSY}{self.disturbed}"
        return self.why or f"its interval is ±{percent(100 * self.half_width)} wide"


def known(values: Iterable[float], floor: float = 0.0) -> Known:
    """Estimate the geometric mean of positive values in the order of time, with a 95 % interval.

    Neighbouring values are correlated, so their number counts for less: it is divided by the sum of their
    autocorrelations, each estimated with caution. The outer tenths are winsorised (Yuen's interval), for there
    are disturbances that nobody sees. Student's t takes the number that is left.

    Args:
        values: rates, or ratios of rates.
        floor: relative half width of what these values cannot show, added in quadrature.
    """
    x = np.log(np.asarray(list(values), dtype=np.float64))
    n = len(x)
    if not n:
        return Known(math.nan, why="nothing was measured undisturbed")
    cut = int(_TRIMMED * n)
    ordered = np.sort(x)
    centre = float(ordered[cut : n - cut].mean())
    found = Known(math.exp(centre), pairs=n, rounds=n)
    if n < FEWEST_PAIRS:
        return replace(found, why=f"{n} undisturbed blocks: {FEWEST_PAIRS} are needed")
    clipped = np.clip(x, ordered[cut], ordered[n - cut - 1])
    deviations = clipped - clipped.mean()
    variance = float(deviations @ deviations) / (n - 1)
    worth = n / _correlation_time(deviations)
    error = math.sqrt(variance / worth) / (1 - 2 * cut / n)
    half = math.hypot(timing.student_t(_95_PERCENT, max(1.0, worth - 1)) * error, floor)
    return replace(found, low=math.exp(centre - half), high=math.exp(centre + half))


def _correlation_time(deviations: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return the number of values that are worth one: 1 + 2 × the autocorrelations up to the first that is not
    positive. An estimate from n values is too small by about (1 + 3 r) / n; somewhat more is added."""
    n = len(deviations)
    variance = float(deviations @ deviations) / n
    if variance <= 0:
        return 1.0
    total = 1.0
    for lag in range(1, max(1, n // 4) + 1):
        r = float(deviations[:-lag] @ deviations[lag:]) / (n - lag) / variance
        r += (2 + 4 * abs(r)) / n
        if r <= 0:
            break
        total += 2 * r
    return total


@dataclass
class Rounds(Generic[Key]):
    """Blocks by way, one a round; None where a way had no turn.

    Attributes:
        baseline: the way whose rate the others' are divided by; None to look at each rate by itself.
        warm_up: first rounds that do not count.
    """

    baseline: Key | None
    goal: Goal
    blocks: dict[Key, list[Block | None]] = field(default_factory=dict)
    warm_up: int = 0

    def counted(self, key: Key) -> list[Block | None]:
        """Return a way's blocks after warm-up."""
        return self.blocks[key][self.warm_up :]

    def seconds(self, key: Key) -> list[float]:
        """Return the seconds of an item in each round; all rounds, in their order."""
        return [1 / block.rate for block in self.blocks[key] if block]

    def rate(self, key: Key) -> Known:
        """Return the rate of a way over its undisturbed blocks, or over all of them where those are too few."""
        mine = self.counted(key)
        made = [block for block in mine if block and block.rate > 0]
        quiet = [block.rate for block in made if not block.disturbed]
        return self._told(known(quiet or [block.rate for block in made], self.goal.floor), [mine])

    def ratio(self, key: Key) -> Known:
        """Return the rate of a way over the baseline's of the same rounds, of those in which neither was disturbed."""
        if self.baseline is None or key == self.baseline:
            own = self.rate(key)
            if self.baseline is None:
                return own
            return replace(own, value=1.0, low=own.low / own.value, high=own.high / own.value)
        return self.between(key, self.baseline)

    def between(self, key: Key, below: Key) -> Known:
        """Return the rate of a way over another's of the same rounds, of those in which neither was disturbed."""
        mine, other = self.counted(key), self.counted(below)
        ratios = [
            a.rate / b.rate
            for a, b in zip(mine, other, strict=True)
            if a and b and not (a.disturbed or b.disturbed) and a.rate > 0 and b.rate > 0
        ]
        return self._told(known(ratios, self.goal.floor), [mine, other])

    def _told(self, found: Known, series: Sequence[Sequence[Block | None]]) -> Known:
        """Add what disturbed the blocks that were left out."""
        rows = [row for row in zip(*series, strict=True) if all(row)]
        causes = [[block.disturbed for block in row if block and block.disturbed] for row in rows]
        busy = [each[0] for each in causes if each]
        told = f"{max(busy, key=busy.count)}, in {len(busy)} of {len(rows)} rounds" if busy else ""
        return replace(found, rounds=len(rows), disturbed=told)


def take_turns(
    ways: Mapping[Key, Callable[[int], Block | None]],
    goal: Goal,
    baseline: Key | None = None,
    *,
    seed: int = 0,
    into: Rounds[Key] | None = None,
    watch: Callable[[], Callable[[], str]] = lambda: str,
    tell: Callable[[Rounds[Key]], None] = lambda rounds: None,
) -> Rounds[Key]:
    """Give each way a block in every round, until the goal or the budget is reached.

    A way whose ratio is known has no further turns; the baseline has one in every round. A way that returns None has
    failed, and has no further turns; without its baseline nothing is measured any more.

    Args:
        ways: function of the round's number that makes one block.
        baseline: way that the others are compared with, one of `ways`; None to measure each by itself.
        seed: seed of the orders.
        into: rounds that were made already and are continued.
        watch: called when a stretch of blocks begins; what it returns is called at the stretch's end, and says what
            disturbed its blocks.
        tell: called after each round.
    """
    if baseline is not None and baseline not in ways:
        raise InvalidArgument(f"the baseline {baseline!r} is none of the ways")
    made = into or Rounds[Key](baseline, goal)
    done = max((len(blocks) for blocks in made.blocks.values()), default=0)
    for key in ways:
        made.blocks.setdefault(key, [None] * done)
    order, active = random.Random(f"{seed}/{done}"), set(ways)
    until_s, look_at = time.monotonic() + goal.budget_s, done + FEWEST_PAIRS
    stretch = _Stretch(made, watch)
    while active - {baseline} or (baseline in active and len(ways) == 1):
        if goal.rounds is not None and done >= goal.rounds:
            break
        turn = sorted(active, key=lambda key: order.random())
        for key in turn:
            if key in active and not stretch.block(key, ways[key], done):
                active = set() if key == baseline else active - {key}
        done += 1
        for blocks in made.blocks.values():
            blocks += [None] * (done - len(blocks))
        tell(made)
        if goal.rounds is None and time.monotonic() >= until_s:
            break
        if goal.rounds is None and done >= look_at:
            look_at = math.ceil(_LOOK_AGAIN * done)
            stretch.judge()
            judged = active if len(made.blocks) == 1 else active - {made.baseline}  # the baseline only when it is alone
            active = active - {key for key in judged if made.goal.verdict(made.ratio(key)) == "ok"}
    stretch.judge()
    return made


class _Stretch(Generic[Key]):
    """Neighbouring blocks that are judged together: those since the last judgement."""

    def __init__(self, made: Rounds[Key], watch: Callable[[], Callable[[], str]]) -> None:
        self._made, self._watch = made, watch
        self._places: list[tuple[Key, int]] = []
        self._begun_s = 0.0  # of its first block, as is what judges it
        self._cause: Callable[[], str] = str

    def block(self, key: Key, way: Callable[[int], Block | None], number: int) -> bool:
        """Make a block of a way and keep it; False if the way failed."""
        if not self._places:
            self._begun_s, self._cause = time.monotonic(), self._watch()
        block, blocks = way(number), self._made.blocks[key]
        if block is not None:
            self._places.append((key, len(blocks)))
            blocks.append(block)
        if time.monotonic() - self._begun_s >= _STRETCH_S:
            self.judge()
        return block is not None

    def judge(self) -> None:
        """Mark the blocks so far as disturbed, if they were."""
        cause = self._cause() if self._places else ""
        for key, place in self._places if cause else ():
            block = self._made.blocks[key][place]
            assert block is not None
            self._made.blocks[key][place] = replace(block, disturbed=cause)
        self._places.clear()
