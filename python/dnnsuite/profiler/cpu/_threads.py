# SPDX-License-Identifier: MIT
"""Counters of every thread of this process, torch's OpenMP threads among them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..._C import PerfGroup, perf_events
from ...errors import Unavailable
from ._machine import read_text

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
            self._groups[tid] = groups
            self._names[tid] = read_text(_TASKS / entry / "comm").strip()
            if self._counting:
                for group in groups:
                    group.enable()

    def start(self) -> None:
        """Start counting."""
        if self._forked():
            return
        self.follow()
        self._counting = True
        for groups in self._groups.values():
            for group in groups:
                group.enable()

    def stop(self) -> None:
        """Stop counting."""
        if self._forked():
            return
        self.follow()
        self._counting = False
        for groups in self._groups.values():
            for group in groups:
                group.disable()

    def read(self) -> list[Count]:
        """Return the counts since `open` of every thread, ended ones included."""
        counts = []
        for tid, groups in self._groups.items():
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
