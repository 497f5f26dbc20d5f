# SPDX-License-Identifier: MIT
"""A session: workers of several ways that are resident together, their turns, and what is known of each afterwards.

Functions of this process take turns by the same mechanism, without workers: :func:`take_turns_here`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from .group import GroupOutcome
from .monitor import Cores, Watch, cpu_tree_s
from .rates import Steps, common_window, rate
from .turn_workers import TurnWorkers
from .turns import Block, Goal, Known, Rounds, take_turns
from .worker import LEAST_WARM_UP

Key = TypeVar("Key", bound=Hashable)

BLOCK_S = 0.06  # of a turn, or one step where that is longer
# What neighbours change of a ratio, though not of a core's time: they have a part of the caches and of the memory.
BESIDE_NEIGHBOURS = 0.08
_ASLEEP = 0.1  # share of its time that a worker sleeps, from which on CPU time is not its time
_ROOM_BESIDE = 0.05  # for what the blocks themselves show


def goal_on(cores: Cores, goal: Goal) -> Goal:
    """Return what can be known on these cores: beside neighbours less than on a quiet machine."""
    if not cores.shared:
        return goal
    floor = max(goal.floor, BESIDE_NEIGHBOURS)
    return replace(goal, floor=floor, half_width=max(goal.half_width, floor + _ROOM_BESIDE))


def wait_policy(threads: int, processes: int, cores: Cores) -> dict[str, str]:
    """Variables for workers' OpenMP: threads that are more than the free cores wait without a core, not by spinning."""
    crowded = cores.shared or threads * processes > len(cores.cpus)
    return {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"} if crowded else {}


@dataclass
class Turn:
    """One block of one way: the steps of each of its workers, and their CPU seconds."""

    replicas: list[Steps]
    cpu_s: float
    by_cpu_time: bool = False

    @property
    def items(self) -> float:
        return float(sum(steps.items.sum() for steps in self.replicas))

    @property
    def seconds(self) -> float:
        """Seconds in which all workers were active."""
        window = common_window(self.replicas)
        return (window[1] - window[0]) * 1e-9 if window else 0.0

    def rate(self) -> float:
        """Items per second while all workers were active, or per CPU second."""
        if self.by_cpu_time:
            return self.items / self.cpu_s if self.cpu_s > 0 else float("nan")
        return rate(self.replicas)


@dataclass
class Session(Generic[Key]):
    """Turns of workers that were started.

    Args:
        workers: workers with every way that is to take part started and set up.
        cores: CPUs that they run on.
        baseline: way that the others are compared with, if it is among them.
    """

    workers: TurnWorkers[Key]
    cores: Cores
    goal: Goal
    baseline: Key | None
    seed: int = 0
    rounds: Rounds[Key] = field(init=False)
    turns: dict[Key, dict[int, Turn]] = field(default_factory=dict)  # by round
    unsettled: set[Key] = field(default_factory=set)  # ways that went on without having found it
    _settled: set[Key] = field(default_factory=set)
    _used_s: float = 0.0  # CPU time of the workers so far
    _counts_wall: bool = False  # a block since the last judgement counts by time, which neighbours lengthen

    def __post_init__(self) -> None:
        self.goal = goal_on(self.cores, self.goal)
        self.rounds = Rounds(self.baseline, self.goal)
        self._watch = Watch(self.cores.cpus)

    def settle(self, least: int = LEAST_WARM_UP) -> None:
        """Let each way, alone, find how its steps run, in `least` steps at least."""
        for key in self.workers.running():
            if key not in self._settled:
                answers = self.workers.turn(key, {"do": "settle", "least": least})
                self._settled.add(key)
                if not all(each["settled"] for each in answers or ()):
                    self.unsettled.add(key)

    def take(
        self,
        order: Callable[[int], Mapping[str, Any]] = lambda number: {"seconds": BLOCK_S},
        rounds: int | None = None,
        budget_s: float | None = None,
        tell: Callable[[Rounds[Key]], None] = lambda rounds: None,
    ) -> None:
        """Take turns until the goal is reached, `rounds` are made in all, or the budget is spent.

        Args:
            order: number of a round → length of its blocks, and their epoch if that is another number.
        """
        running = self.workers.running()
        if not running or (self.baseline is not None and self.baseline not in running):
            return
        goal = replace(self.goal, rounds=rounds, budget_s=budget_s or self.goal.budget_s)
        ways = {key: self._way(key, order) for key in running}
        take_turns(ways, goal, self.baseline, seed=self.seed, into=self.rounds, watch=self._begin, tell=tell)

    def _begin(self) -> Callable[[], str]:
        before, own_s, self._counts_wall = self._watch.read(), self._own_s(), False
        return lambda: self._watch.disturbed(before, self._own_s() - own_s) if self._counts_wall else ""

    def _own_s(self) -> float:
        return time.process_time() + self._used_s

    def _way(self, key: Key, order: Callable[[int], Mapping[str, Any]]) -> Callable[[int], Block | None]:
        def block(number: int) -> Block | None:
            answers = self.workers.turn(key, {"do": "block", "epoch": number, **order(number)})
            if answers is None:
                return None
            replicas = [_steps(each, number) for each in answers]
            length_s = sum(steps.stops_ns[-1] - steps.starts_ns[0] for steps in replicas) * 1e-9
            # What sleeps is not slowed by neighbours alone; CPU time would not show it.
            works = sum(each["asleep_s"] for each in answers) < _ASLEEP * length_s
            by_cpu_time = self.cores.by_cpu_time and works
            turn = Turn(replicas, sum(each["cpu_s"] for each in answers), by_cpu_time)
            self.turns.setdefault(key, {})[number] = turn
            self._used_s += sum(each["own_s"] for each in answers)
            self._counts_wall |= not by_cpu_time
            return Block(turn.rate())

        return block

    def kept(self, key: Key, warm_up: int = 0) -> list[Turn]:
        """Return the turns that count: undisturbed ones after warm-up, or all of these where none is undisturbed."""
        mine = {number: turn for number, turn in self.turns.get(key, {}).items() if number >= warm_up}
        disturbed = self.disturbed(key)
        return [turn for number, turn in mine.items() if number not in disturbed] or list(mine.values())

    def disturbed(self, key: Key) -> list[int]:
        """Return the numbers of the rounds in which the way itself was disturbed."""
        return [i for i, block in enumerate(self.rounds.blocks.get(key, [])) if block and block.disturbed]

    def known(self, key: Key) -> tuple[Known, str]:
        """Return a way's ratio to the baseline, and what that is worth: ok, rough or inconclusive."""
        found = self.rounds.ratio(key)
        return found, self.goal.verdict(found)

    def end(self) -> dict[Key, GroupOutcome]:
        """Tell the workers which of their blocks were disturbed, let them end, and return what became of each way."""
        last = {}
        for key in self.workers.running():
            places = sorted(self.turns.get(key, {}))
            disturbed = [places.index(number) for number in self.disturbed(key) if number in places]
            last[key] = {"do": "last", "disturbed": disturbed}
        return self.workers.end(last)


def _steps(answer: Mapping[str, Any], number: int) -> Steps:
    """Return the steps of a worker's answer; of steps that returned before they were done the block is one."""
    stops = np.array(answer["stops_ns"], np.int64)
    starts = np.concatenate([[answer["start_ns"]], stops[:-1]]).astype(np.int64)
    items = np.full(len(stops), answer["items"], np.int64)
    steps = Steps(starts, stops, items, np.full(len(stops), number, np.int64))
    return steps.by_epoch() if answer["asynchronous"] else steps


Way = Callable[[int], "float | None"]  # runs so many steps; CPU seconds of other processes, if it has any

_MOST_STEPS = 100_000  # of a turn


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
) -> Rounds[Key]:
    """Let functions take turns until the goal is reached; rates are steps per second.

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
    return take_turns(turns, goal_on(cores, goal), baseline, into=into, watch=begin, tell=tell)


def _as_long_as(segment_s: float, timed: Callable[[int], float]) -> int:
    """Return the steps that take about so long."""
    timed(1)
    return max(1, min(_MOST_STEPS, round(2 * segment_s / max(timed(2), 1e-9))))


def _own_s() -> float:
    return time.process_time() + cpu_tree_s(os.getpid())
