# SPDX-License-Identifier: MIT
"""CPU instrument: counters of every thread, samples of the machine, and CPU time beside each step's wall time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ..._lazy import pandas as pd
from ...errors import Unavailable
from ...timing import now_ns
from ..instrument import define
from ..sampler import Reading, Sampler, samples_table
from ._machine import DEFINITIONS, MachineReader, cpu_times_s, read_text
from ._ops import OpsInstrument
from ._threads import Count, ThreadCounters

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


class CpuInstrument:
    """Counters and samples while a window is open.

    Args:
        interval_s: between samples of the machine, s.

    Tables: `samples` (source `cpu`), `counters_cpu` (per thread) and `steps_cpu` (CPU time beside wall time, which
    shows time taken by other processes). Hardware counters where there is a PMU; notes say where there is none.
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
        self._stolen = _Stolen()
        self._last = (0, 0, 0.0)
        self._cpu_ns = 0
        self._began_cpu_ns: int | None = None  # None: no window is open
        self._unseen = 0

    def open(self) -> None:
        """Open the counters. If the kernel forbids them, there are samples only, and a note."""
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
        """Read (clock ns, CPU ns of this process, s stolen from the machine)."""
        t_ns = now_ns()
        return t_ns, time.process_time_ns(), self._stolen.at(t_ns, exactly)

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


class _Stolen:
    """Seconds stolen from the machine, read at most every `STEAL_EVERY_NS`: reading /proc/stat is slow."""

    def __init__(self) -> None:
        self._read_ns, self._seconds = 0, 0.0

    def at(self, t_ns: int, exactly: bool = False) -> float:
        """Return the value at the current time `t_ns`, up to `STEAL_EVERY_NS` old unless `exactly`."""
        if exactly or t_ns - self._read_ns >= STEAL_EVERY_NS:
            self._read_ns = t_ns
            self._seconds = cpu_times_s(read_text(Path("/proc/stat"))).get("steal", 0.0)
        return self._seconds


class ObservedSteps(NamedTuple):
    """Tables `ops` and `steps_cpu` of the instruments, and CpuInstrument's notes on the machine."""

    ops: pd.DataFrame
    steps: pd.DataFrame
    notes: list[str]


def observe_steps(step: Callable[[], object], count: int) -> ObservedSteps:
    """Call `step`, which returns when its work is done, `count` times, and observe operators and CPU time."""
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
