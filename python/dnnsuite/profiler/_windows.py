# SPDX-License-Identifier: MIT
"""The schedule of observed steps, and the driver of instruments over its windows; it closes them in any case."""

from __future__ import annotations

import enum
import itertools
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from .._lazy import pandas as pd
from ..errors import InvalidArgument
from ..timing import batch_means, compare, now_ns
from .instrument import Instrument, define


class Phase(enum.Enum):
    """State of the instruments in one step."""

    OFF = "off"  # nothing is observed: what the overhead is measured against
    WARMUP = "warmup"  # instruments run, what they see is dropped: it holds their own start-up
    ACTIVE = "active"
    LAST = "last"  # active, and the window closes after it

    @property
    def on(self) -> bool:
        """True if instruments run."""
        return self is not Phase.OFF

    @property
    def kept(self) -> bool:
        """True if their results are kept."""
        return self in (Phase.ACTIVE, Phase.LAST)


@dataclass(frozen=True)
class Schedule:
    """Steps to observe: `skip_first` steps off, then cycles of `wait` steps off, `warmup` and `active`.

    If `repeat` is 0, cycles are repeated until the loop ends.
    """

    skip_first: int
    wait: int
    warmup: int
    active: int
    repeat: int

    def __call__(self, step: int) -> Phase:
        """Return the phase of step `step`, counted from 0."""
        if step < self.skip_first:
            return Phase.OFF
        cycle, within = divmod(step - self.skip_first, self.wait + self.warmup + self.active)
        if self.repeat and cycle >= self.repeat:
            return Phase.OFF
        if within < self.wait:
            return Phase.OFF
        if within < self.wait + self.warmup:
            return Phase.WARMUP
        return Phase.LAST if within == self.wait + self.warmup + self.active - 1 else Phase.ACTIVE

    @property
    def first_active(self) -> int:
        """The first step whose results are kept."""
        return self.skip_first + self.wait + self.warmup

    @property
    def steps(self) -> int | None:
        """Number of steps until the last window closes; None if there is no last window."""
        cycle = self.wait + self.warmup + self.active
        return self.skip_first + self.repeat * cycle if self.repeat else None


def schedule(
    skip_first: int = 0,
    wait: int = 0,
    warmup: int = 0,
    active: int | None = None,
    repeat: int = 0,
    *,
    start_iteration: int | None = None,
    profile_iterations: int | None = None,
) -> Schedule:
    """Choose the steps to observe, with the arguments of `torch.profiler.schedule` or of TBD's scripts.

    Args:
        skip_first: number of steps before the first cycle, which are not observed.
        wait, warmup, active: number of steps of each cycle that run without instruments, with instruments whose results
            are dropped, and with results that are kept. The overhead is measured against the waiting steps, so it needs
            `wait`.
        repeat: number of cycles; 0 repeats them until the loop ends.
        start_iteration: the first iteration that is kept, instead of `skip_first` and `wait`.
        profile_iterations: number of iterations that are kept, once, instead of `active` and `repeat`.

    Raises:
        InvalidArgument: a number is negative, no step is active, or both kinds of arguments are given.

    >>> from dnnsuite import profiler
    >>> profiler.schedule(wait=2, warmup=3, active=10)
    Schedule(skip_first=0, wait=2, warmup=3, active=10, repeat=0)
    """
    if start_iteration is not None or profile_iterations is not None:
        if skip_first or wait or repeat or active is not None:
            raise InvalidArgument(
                "start_iteration and profile_iterations stand for skip_first, wait, active and repeat: give one or "
                "the other"
            )
        start = _whole("start_iteration", 10 if start_iteration is None else start_iteration)
        kept = _whole("profile_iterations", 10 if profile_iterations is None else profile_iterations, 1)
        warm = min(_whole("warmup", warmup), start)
        return Schedule(start - warm, 0, warm, kept, 1)
    if active is None:
        raise InvalidArgument("schedule needs active=..., how many steps of a cycle are kept")
    return Schedule(
        _whole("skip_first", skip_first),
        _whole("wait", wait),
        _whole("warmup", warmup),
        _whole("active", active, 1),
        _whole("repeat", repeat),
    )


def _whole(name: str, value: int, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidArgument(f"{name} must be a whole number, {least} or more; got {value!r}")
    return value


FOREIGN = "foreign"  # phase of a step in which an instrument gave way to a recorder of the program's
_KEPT_OFF = 4096  # steps without instruments that are remembered, of a loop that may be endless

STEP_COLUMNS = {
    "step": "number of the step in the loop, counted from 0",
    "phase": "off: no instruments; warmup: instruments run, results are dropped; active: kept; foreign: the program's "
    "own torch.profiler recorded in it, so that it is not observed",
    "window": "number of the window, counted from 0; -1 where instruments are off",
    "t0_ns": "begin, ns of CLOCK_MONOTONIC",
    "t1_ns": "end, ns of CLOCK_MONOTONIC; where a window opens or closes after waiting for the device",
    "wall_ns": "t1_ns - t0_ns, the work of opening and closing windows left out",
    "thread_cpu_ns": "CPU time of the thread that runs the loop (CLOCK_THREAD_CPUTIME_ID)",
    "displaced_ns": "time that thread was ready and had no CPU (/proc/thread-self/schedstat); 0 where unknown",
    "process_cpu_ns": "CPU time of all threads of the process (CLOCK_PROCESS_CPUTIME_ID)",
}


class LoopStep(NamedTuple):
    """One step of the loop."""

    step: int
    phase: str
    window: int
    t0_ns: int
    t1_ns: int
    thread_cpu_ns: int
    process_cpu_ns: int
    displaced_ns: int


class Windows:
    """State machine: `begin` once, `step` after each step, `close` once; all instruments are open in between."""

    def __init__(
        self,
        instruments: Sequence[Instrument],
        schedule: Callable[[int], Phase],
        on_window: Callable[[], None] = lambda: None,
        synchronize: Callable[[], object] | None = None,
        first: int = 0,
    ) -> None:
        self.instruments, self._schedule, self._on_window = list(instruments), schedule, on_window
        self._wait = synchronize or _wait_for_device
        self.index = first  # number of the step that is under way
        self.window = -1  # the last window that was opened
        self.cut: str | None = None  # why the last window ended early
        self._kept = 0
        self._running: list[Instrument] = []
        self._off: deque[LoopStep] = deque(maxlen=_KEPT_OFF)
        self._on: list[LoopStep] = []
        self._mark = (0, 0, 0, 0)

    @property
    def steps(self) -> list[LoopStep]:
        """Steps that have ended, in order."""
        return sorted([*self._off, *self._on])

    @property
    def active(self) -> list[LoopStep]:
        """Steps that are kept."""
        return [step for step in self._on if step.phase == Phase.ACTIVE.value]

    def begin(self) -> None:
        """Begin the first step."""
        self._enter(self._schedule(self.index))
        self._mark = _clocks()

    def step(self) -> None:
        """End a step and begin the next."""
        phase, following = self._schedule(self.index), self._schedule(self.index + 1)
        changes = phase is Phase.LAST or phase.on != following.on
        if changes:
            self._wait()
        self._note(phase)
        if phase.kept:
            for instrument in self._running:
                instrument.step(self._kept)
            self._kept += 1
        self.index += 1
        if phase is Phase.LAST:
            self._leave()
            self._on_window()
        if changes:
            self._enter(following)
        self._mark = _clocks()

    def cut_short(self, why: str) -> None:
        """Close a window that is still open; `why` becomes :attr:`cut`."""
        if self._running:
            self.cut = why
            self._leave()

    def note_rest(self) -> None:
        """Count the rest of a loop that never called `step` as one step."""
        self._wait()
        self._note(self._schedule(self.index))
        self.index += 1

    def close(self) -> None:
        """Close all instruments; raise the first error after that."""
        with ExitStack() as closing:
            for instrument in self.instruments:
                closing.callback(instrument.close)

    def _note(self, phase: Phase) -> None:
        before, after = self._mark, _clocks()
        foreign = any(getattr(each, "gave_way", False) for each in self._running)
        wall, thread_cpu, process_cpu, displaced = (now - then for then, now in zip(before, after, strict=True))
        step = LoopStep(
            self.index,
            FOREIGN if foreign else Phase.ACTIVE.value if phase.kept else phase.value,
            self.window if phase.on else -1,
            before[0],
            after[0],
            thread_cpu,
            process_cpu,
            min(displaced, max(0, wall - thread_cpu)),  # counted when a wait ends, also one before the step
        )
        (self._on if phase.on else self._off).append(step)

    def _enter(self, phase: Phase) -> None:
        if not phase.on or self._running:
            return
        self.window += 1
        self._kept = 0
        for instrument in self.instruments:
            self._running.append(instrument)  # first: one that fails half-way is stopped, too
            instrument.start()

    def _leave(self) -> None:
        running, self._running = self._running, []
        with ExitStack() as stopping:
            for instrument in running:
                stopping.callback(instrument.stop)

    def table(self) -> pd.DataFrame:
        """Return the steps as table `steps`."""
        table = pd.DataFrame(self.steps, columns=list(LoopStep._fields))
        table.insert(5, "wall_ns", table["t1_ns"] - table["t0_ns"])
        return define(table, STEP_COLUMNS)


def _clocks() -> tuple[int, int, int, int]:
    return now_ns(), time.thread_time_ns(), time.process_time_ns(), _displaced_ns()


def _displaced_ns() -> int:
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return 0


def _wait_for_device() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


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
    sides = on, [ns for each in off for ns in each]
    if min(map(len, sides)) < 2:
        return math.nan
    found = compare(*sides, paired=False, independent=True)
    return math.log(found.high / found.low) / 2
