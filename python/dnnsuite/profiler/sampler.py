# SPDX-License-Identifier: MIT
"""Thread that takes readings at a fixed interval and measures its own cost."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from .._lazy import pandas as pd
from ..errors import InvalidArgument
from ..timing import now_ns

_JOIN_S = 5.0  # a driver that hangs must not hang the program


class Reading(NamedTuple):
    """Value with its device (`gpu0`, `machine`, `process`), name and unit."""

    device: str
    name: str
    value: float
    unit: str


_COLUMNS = {
    "t_ns": "when it was read, CLOCK_MONOTONIC",
    "source": "the instrument",
    "device": "what was read: gpu0, gpu0/mig1, machine, process, cpu0, ...",
    "name": "what of it; each name has its own line here",
    "value": "the reading, in `unit`",
    "unit": "of the value",
}

Row = tuple[int, str, str, float, str]  # t_ns and a Reading


class Sampler:
    """Thread that calls `read` every `interval_s` seconds, from `start` to `stop`.

    A missed deadline is counted and skipped, so that samples stay on one grid. An error of `read` ends the thread and
    becomes a note. In a forked child there is no thread, and `stop` only forgets it.

    Args:
        keep: called in the thread with the time and the readings of each call; by default they become `rows`.

    Raises:
        InvalidArgument: the interval is not positive.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Iterable[Reading]],
        interval_s: float,
        keep: Callable[[int, Iterable[Reading]], None] | None = None,
    ) -> None:
        if not interval_s > 0:
            raise InvalidArgument(f"the interval between samples must be positive, got {interval_s} s")
        self.name, self.interval_s = name, interval_s
        self.rows: list[Row] = []
        self.reads = self.missed = self.cost_ns = self.cpu_ns = self.lasted_ns = 0
        self.failure: BaseException | None = None
        self._read = read
        self._keep = keep or (lambda t_ns, readings: self.rows.extend((t_ns, *each) for each in readings))
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._owner = 0

    @property
    def running(self) -> bool:
        """True if the thread is alive in this process."""
        return self._thread is not None and self._owner == os.getpid() and self._thread.is_alive()

    def start(self) -> None:
        """Start, or continue after `stop`. Does nothing while it runs."""
        if self.running:
            return
        self._stopping = threading.Event()
        self._owner = os.getpid()
        self._thread = threading.Thread(
            target=self._run, args=(self._stopping,), name=f"dnnsuite-{self.name}", daemon=True
        )
        self._thread.start()
        _running.add(self)

    def stop(self) -> None:
        """End the thread after one last reading, and wait for it. May be repeated."""
        thread, self._thread = self._thread, None
        _running.discard(self)
        if thread is None or self._owner != os.getpid():
            return
        self._stopping.set()
        if thread is not threading.current_thread():
            thread.join(_JOIN_S)
            if thread.is_alive():
                self.failure = self.failure or TimeoutError(f"a reading takes more than {_JOIN_S:g} s")

    def _run(self, stopping: threading.Event) -> None:
        begin = now_ns()
        interval_ns = round(self.interval_s * 1e9)
        deadline = begin
        try:
            while True:
                last = stopping.wait(max(0, deadline - now_ns()) / 1e9)
                self._take()
                if last:
                    break
                deadline += interval_ns
                late = (now_ns() - deadline) // interval_ns
                if late > 0:
                    self.missed += late
                    deadline += late * interval_ns
        except BaseException as error:  # the thread ends, the program does not
            self.failure = error
        finally:
            self.lasted_ns += now_ns() - begin

    def _take(self) -> None:
        cpu, wall = time.thread_time_ns(), now_ns()
        self._keep(wall, self._read())
        self.cost_ns += now_ns() - wall
        self.cpu_ns += time.thread_time_ns() - cpu
        self.reads += 1

    def notes(self) -> list[str]:
        """Cost of the sampling, missed samples and the reason for an early end, a sentence each."""
        found = []
        if self.reads:
            share = 100 * self.cpu_ns / max(self.lasted_ns, 1)
            found.append(
                f"{self.name}: {self.reads} readings every {self.interval_s:g} s, "
                f"{self.cost_ns / self.reads / 1e3:.0f} µs each, {share:.2f} % of one CPU"
            )
        if self.missed:
            found.append(f"{self.name}: {self.missed} readings were left out, their time had passed")
        if self.failure is not None:
            found.append(f"{self.name}: sampling ended: {type(self.failure).__name__}: {self.failure}")
        return found


_running: weakref.WeakSet[Sampler] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop all samplers at exit: a thread inside a driver may crash the ending interpreter."""
    for sampler in list(_running):
        sampler.stop()


def samples_table(source: str, rows: Iterable[Row], definitions: Mapping[str, str]) -> pd.DataFrame:
    """Table `samples`: t_ns, source, device, name, value, unit.

    Args:
        source: name of the instrument.
        rows: rows of a `Sampler`.
        definitions: one line for each name, kept in `attrs["definitions"]` after those of the columns.
    """
    table = pd.DataFrame(list(rows), columns=[name for name in _COLUMNS if name != "source"])
    table.insert(1, "source", source)
    table = table.astype({"t_ns": "int64", "value": "float64"})
    for column in ("source", "device", "name", "unit"):
        table[column] = table[column].astype("category")
    table.attrs["definitions"] = {**_COLUMNS, **definitions}
    return table
