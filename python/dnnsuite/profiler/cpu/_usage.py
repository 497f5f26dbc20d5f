# SPDX-License-Identifier: MIT
"""CPU instrument: counters of every thread of this process, torch's OpenMP threads among them, samples of the machine,
and CPU time beside each step's wall time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]

from ..._C import PerfGroup, perf_events
from ..._lazy import pandas as pd
from ...errors import Unavailable
from ...timing import now_ns
from ..instrument import Instrument, define
from ..sampler import Reading, Sampler, samples_table
from ._machine import DEFINITIONS, MachineReader, read_text
from ._ops import OpsInstrument

# Counted together: few enough for every PMU's counters, so that no group is multiplexed by its own size.
HARDWARE = ("cycles", "instructions", "cache_references", "cache_misses")
SOFTWARE = ("task_clock", "page_faults", "major_faults", "context_switches", "migrations")
_TASKS = Path("/proc/self/task")
UNITS = {name: unit for name, unit, _ in perf_events()}


class Count(NamedTuple):
    """Value of one counter of one thread."""

    thread: int
    thread_name: str
    counter: str
    value: float  # scaled where the counter ran part of the time
    unit: str
    running_pct: float  # of the time it was meant to count
    user_only: bool


class ThreadCounters:
    """Groups of counters for each thread; `follow` adds threads that began since.

    Inheritance (`inherit=1`) would see threads that begin and end between two calls, and cannot be read as a group. The
    counters belong to the process that opened them: in a forked child all methods do nothing.
    """

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}  # reason: remedy
        self._sets: list[Sequence[str]] = []
        self._groups: dict[int, list[PerfGroup]] = {}
        self._names: dict[int, str] = {}
        self._counting = False
        self._owner = os.getpid()
        self.unseen = 0  # threads that could not be opened

    def open(self) -> None:
        """Find the events that can be counted here, and open them for every thread.

        Raises:
            Unavailable: not even software events may be counted.
        """
        self.refused.clear()
        self._sets = [names for names in map(self._countable, (HARDWARE, SOFTWARE)) if names]
        if not self._sets:
            reason, remedy = next(iter(self.refused.items()))
            raise Unavailable(reason, "perf_event_open", remedy)
        self.follow()

    @property
    def has_pmu(self) -> bool:
        """True if any hardware event is counted."""
        return any(name in HARDWARE for names in self._sets for name in names)

    def _countable(self, names: Sequence[str]) -> list[str]:
        """List the events of `names` that can be counted together: all, or those that open one by one."""
        if self._refusal(names) is None:
            return list(names)
        refusals = {name: self._refusal([name]) for name in names}
        usable = [name for name, refusal in refusals.items() if refusal is None]
        refused = [refusal for refusal in refusals.values() if refusal is not None]
        for refusal in refused if usable else refused[:1]:  # without a PMU one sentence is enough
            self.refused[refusal.what] = refusal.remedy
        return usable if not usable or self._refusal(usable) is None else usable[:1]

    @staticmethod
    def _refusal(names: Sequence[str]) -> Unavailable | None:
        try:
            PerfGroup(0, list(names))
        except Unavailable as error:
            return error
        return None

    def follow(self) -> None:
        """Open groups for threads that have none yet; they count from here on."""
        if self._forked():
            return
        for entry in os.listdir(_TASKS):
            tid = int(entry)
            if tid in self._groups:
                continue
            try:
                groups = [PerfGroup(tid, list(names)) for names in self._sets]
            except Unavailable:  # it has ended meanwhile, or there is no descriptor left
                self.unseen += (_TASKS / entry).exists()
                self._groups[tid] = []
                continue
            self._names[tid] = read_text(_TASKS / entry / "comm").strip()  # first: another thread may be reading
            self._groups[tid] = groups
            if self._counting:
                for group in groups:
                    group.enable()

    def start(self) -> None:
        """Start counting."""
        self._count(True)

    def stop(self) -> None:
        """Stop counting."""
        self._count(False)

    def _count(self, counting: bool) -> None:
        if self._forked():
            return
        self.follow()
        self._counting = counting
        for group in (group for groups in list(self._groups.values()) for group in groups):
            group.enable() if counting else group.disable()

    def read(self) -> list[Count]:
        """Return the counts since `open` of every thread, ended ones included."""
        counts = []
        for tid, groups in list(self._groups.items()):
            for group in groups:
                for name, value in zip(group.names, group.read(), strict=True):
                    waited = value.enabled_ns == 0  # the thread did not run at all: it counted nothing, truly
                    scaled = 0.0 if waited else value.scaled
                    ran = 100.0 if waited else 100 * value.running_ns / value.enabled_ns
                    counts.append(Count(tid, self._names[tid], name, scaled, UNITS[name], ran, group.user_only))
        return counts

    def _forked(self) -> bool:
        """True in a fork of the process that opened the counters; using them here would change the parent's counts."""
        return self._owner != os.getpid()

    def close(self) -> None:
        """Close every descriptor."""
        self._groups.clear()


_COUNTERS = {
    "thread": "number of the thread, as the kernel counts",
    "thread_name": "its name when it was first seen",
    "counter": "what was counted; see dnnsuite._C.perf_events()",
    "value": "count over all windows, in `unit`; scaled to the whole time where the counter ran part of it",
    "unit": "of the value",
    "running_pct": "share of the time in which the counter counted; below 100 the value is an estimate",
    "multiplexed": "whether the value is such an estimate",
    "user_only": "whether the kernel's own work is left out (perf_event_paranoid)",
}
_STEPS = {
    "step": "number of the step within its window",
    "t0_ns": "end of the step before, or the window's start; CLOCK_MONOTONIC",
    "t1_ns": "end of the step",
    "wall_ns": "t1_ns - t0_ns",
    "cpu_ns": "CPU time of all threads of this process in it",
    "cpus_used": "cpu_ns / wall_ns: falls below the threads in use when something else had the CPUs",
    "steal_ns": "time that the hypervisor gave to others, all CPUs together, in the kernel's ticks of 10 ms; it is "
    "read every 50 ms, so of several short steps the last has it",
}
_STOLEN_PCT = 1.0
STEAL_EVERY_NS = 50_000_000


class CpuInstrument(Instrument):
    """Counters and samples of the CPUs while a window is open.

    The tables are `samples` (source `cpu`), `counters_cpu` (per thread) and `steps_cpu` (CPU time beside wall time,
    which shows time taken by other processes). Hardware counters are included if there is a PMU; otherwise notes say
    so.

    Args:
        interval_s: time between samples of the machine, s.
    """

    name = "cpu"

    def __init__(self, interval_s: float = 0.1) -> None:
        self._machine = MachineReader()
        self._sampler = Sampler("cpu", self._read, interval_s)
        self._threads: ThreadCounters | None = None
        self._refused: dict[str, str] = {}
        self._has_pmu = False
        self._counts: list[Count] = []
        self._steps: list[tuple[int, int, int, int, float]] = []
        self._stolen_s, self._stolen_read_ns = 0.0, 0
        self._last = (0, 0, 0.0)
        self._cpu_ns = 0
        self._began_cpu_ns: int | None = None  # None: no window is open
        self._unseen = 0

    def open(self) -> None:
        """Open the counters. If the kernel forbids them, there are only samples, and a note."""
        threads = ThreadCounters()
        try:
            threads.open()
            self._threads = threads
        except Unavailable:
            self._threads = None
        self._refused, self._has_pmu = threads.refused, threads.has_pmu

    def start(self) -> None:
        self._machine.forget()
        if self._threads is not None:
            self._threads.start()
        self._sampler.start()
        self._began_cpu_ns = time.process_time_ns()
        self._last = self._now(exactly=True)

    def _now(self, exactly: bool = False) -> tuple[int, int, float]:
        """Read (clock ns, CPU ns of this process, s stolen from the machine, which may be `STEAL_EVERY_NS` old)."""
        t_ns = now_ns()
        if exactly or t_ns - self._stolen_read_ns >= STEAL_EVERY_NS:  # reading /proc/stat is slow
            self._stolen_read_ns = t_ns
            self._stolen_s = getattr(psutil.cpu_times(), "steal", 0.0)
        return t_ns, time.process_time_ns(), self._stolen_s

    def step(self, index: int) -> None:
        now = self._now()
        (t0, cpu0, steal0), (t1, cpu1, steal1) = self._last, now
        self._steps.append((index, t0, t1, cpu1 - cpu0, steal1 - steal0))
        self._last = now

    def stop(self) -> None:
        self._sampler.stop()
        began, self._began_cpu_ns = self._began_cpu_ns, None
        if began is None:
            return
        self._cpu_ns += time.process_time_ns() - began
        if self._threads is not None:
            self._threads.stop()
            self._counts = self._threads.read()
            self._unseen = self._threads.unseen

    def _read(self) -> Iterator[Reading]:
        if self._threads is not None:
            self._threads.follow()
        yield from self._machine.read()

    def tables(self) -> dict[str, pd.DataFrame]:
        counters = pd.DataFrame(
            [
                (c.thread, c.thread_name, c.counter, c.value, c.unit, c.running_pct, c.running_pct < 100, c.user_only)
                for c in self._counts
            ],
            columns=list(_COUNTERS),
        )
        steps = pd.DataFrame(
            [
                (i, t0, t1, t1 - t0, cpu, cpu / max(t1 - t0, 1), round(steal * 1e9))
                for i, t0, t1, cpu, steal in self._steps
            ],
            columns=list(_STEPS),
        )
        return {
            "samples": samples_table("cpu", self._sampler.rows, DEFINITIONS),
            "counters_cpu": define(counters, _COUNTERS),
            "steps_cpu": define(steps, _STEPS),
        }

    def notes(self) -> list[str]:
        found = self._sampler.notes()
        found += [f"cpu: {what}" + (f"; {remedy}" if remedy else "") for what, remedy in self._refused.items()]
        if not self._has_pmu:
            found.append("cpu: no PMU: FLOPs are analytic, not counted")
        multiplexed = sorted({c.counter for c in self._counts if c.running_pct < 100})
        if multiplexed:
            found.append(f"cpu: counted part of the time, scaled: {', '.join(multiplexed)}")
        if self._unseen:
            found.append(f"cpu: {self._unseen} threads could not be counted")
        found += self._missing()
        wall_ns = sum(t1 - t0 for _, t0, t1, _, _ in self._steps)
        stolen_ns = 1e9 * sum(steal for *_, steal in self._steps)
        if wall_ns and 100 * stolen_ns / wall_ns > _STOLEN_PCT:
            found.append(f"cpu: contention: in the steps the hypervisor took {stolen_ns / wall_ns:.2f} CPUs away")
        return found

    def _missing(self) -> list[str]:
        """List a note on threads that began and ended between two samples: the process's time has them, the counters do
        not."""
        seen = sum(c.value for c in self._counts if c.counter == "task_clock")
        if not self._counts or self._cpu_ns <= 0 or seen >= 0.95 * self._cpu_ns:
            return []
        return [f"cpu: the counted threads took {100 * seen / self._cpu_ns:.0f} % of the process's CPU time"]

    def close(self) -> None:
        self._sampler.stop()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()


class ObservedSteps(NamedTuple):
    """Tables `ops` and `steps_cpu` of the instruments, and remarks of CpuInstrument on the machine."""

    ops: pd.DataFrame
    steps: pd.DataFrame
    notes: list[str]


def observe_steps(step: Callable[[], object], count: int) -> ObservedSteps:
    """Call `step` `count` times, and observe operators and CPU time. `step` must return only when its work is done."""
    ops, cpu = OpsInstrument(), CpuInstrument()
    with ExitStack() as undo:
        for instrument in (ops, cpu):
            undo.callback(instrument.close)
            instrument.open()
        for instrument in (ops, cpu):
            instrument.start()
        for index in range(count):
            step()
            for instrument in (ops, cpu):
                instrument.step(index)
        for instrument in (ops, cpu):
            instrument.stop()
    return ObservedSteps(ops.tables()["ops"], cpu.tables()["steps_cpu"], cpu.notes())
