# SPDX-License-Identifier: MIT
"""Functions of this process that take turns: the mechanism of `turns` without workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from .neighbours import Cores, Watch, cpu_tree_s
from .turn_session import goal_on
from .turns import Block, Goal, Rounds, take_turns

Key = TypeVar("Key", bound=Hashable)
Way = Callable[[int], "float | None"]  # runs so many steps; CPU seconds of other processes, if it has any

_MOST_STEPS = 100_000  # of a turn


@dataclass
class Here(Generic[Key]):
    """Measurement in this process.

    Attributes:
        rounds: blocks of each way; rates are steps per second.
        steps: steps of each way's turns.
    """

    rounds: Rounds[Key]
    steps: dict[Key, int] = field(default_factory=dict)

    def seconds(self, key: Key) -> list[float]:
        """Return the seconds of a step in each round; all rounds, in their order."""
        return [1 / block.rate for block in self.rounds.blocks[key] if block]


def take_turns_here(
    ways: Mapping[Key, Way],
    goal: Goal,
    baseline: Key | None = None,
    *,
    cores: Cores,
    clock: Callable[[], float] = time.perf_counter,
    stopwatch: Callable[[Callable[[], object], int], float] | None = None,
    by_cpu_time: bool = False,
    segment_s: float = 0.05,
    steps: int | None = None,
    into: Rounds[Key] | None = None,
    tell: Callable[[Rounds[Key]], None] = lambda rounds: None,
) -> Here[Key]:
    """Let functions take turns until the goal is reached.

    Args:
        ways: each runs a number of steps, and has done so when it returns.
        cores: CPUs that neighbours leave free; blocks beside them count only by CPU time.
        clock: seconds of this process.
        stopwatch: (function, how often) → seconds, instead of a clock, as for a GPU's own time.
        by_cpu_time: the clock counts CPU time, which neighbours hardly change: no block is left out.
        segment_s: length of a turn, or one step where that is longer.
        steps: steps of each turn, instead of `segment_s`.
        into: rounds that were made already and are continued.
    """
    watch = Watch(cores.cpus)

    def timed(way: Way, count: int) -> float:
        if stopwatch is not None:
            return stopwatch(lambda: way(count), 1)
        begin_s = clock()
        elsewhere_s = way(count) or 0.0
        return clock() - begin_s + (elsewhere_s if by_cpu_time else 0.0)

    counts = {}
    for key, way in ways.items():
        counts[key] = steps or _as_long_as(segment_s, partial(timed, way))

    def turn(key: Key) -> Callable[[int], Block]:
        return lambda number: Block(counts[key] / max(timed(ways[key], counts[key]), 1e-9))

    def begin() -> Callable[[], str]:
        before, own_s = watch.read(), _own_s()
        return lambda: "" if by_cpu_time else watch.disturbed(before, _own_s() - own_s)

    turns = {key: turn(key) for key in ways}
    return Here(take_turns(turns, goal_on(cores, goal), baseline, into=into, watch=begin, tell=tell), counts)


def _as_long_as(segment_s: float, timed: Callable[[int], float]) -> int:
    """Return the steps that take about so long."""
    timed(1)
    return max(1, min(_MOST_STEPS, round(2 * segment_s / max(timed(2), 1e-9))))


def _own_s() -> float:
    return time.process_time() + cpu_tree_s(os.getpid())
