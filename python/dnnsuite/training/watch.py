# SPDX-License-Identifier: MIT
"""The machine's load while a run trains: `monitor.csv`, which a resumed run continues."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from .._runs.monitor import MONITOR_FILE, TIME_COLUMN, MonitorColumn, MonitorLog
from ..profiler.monitor import Monitor

__all__ = ["Watch"]

_INTERVAL_S = 0.5
_WRITE_AGAIN_S = 10.0
_COSTS = 500  # a file is written again once this many times as long as writing took has passed


class Watch:
    """Sampler of the machine and this process while its `with` block is open; `write` may be called at any time.

    Args:
        folder: directory of the run; None in processes that are not the first, where nothing is done.
        gpus: sample those as well.
        go_on: rows of the run's file are kept, on the clock of this boot.
    """

    def __init__(self, folder: Path | None, gpus: bool, go_on: bool) -> None:
        self._folder, self._ended = folder, False
        kind = "auto" if folder is not None else "none"
        self._monitor = Monitor(kind, gpus=gpus, counters=False, interval_s=_INTERVAL_S)
        self._next_s = time.monotonic() + _WRITE_AGAIN_S
        if folder is not None and go_on and (folder / MONITOR_FILE).is_file():
            _restore(self._monitor.log, folder / MONITOR_FILE)

    def __enter__(self) -> Watch:
        self._monitor.__enter__()
        self._monitor.follow(os.getpid())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End sampling and write the file: before the record, which says that all is done."""
        if self._ended:
            return
        self._ended = True
        self._monitor.__exit__(None, None, None)
        if self._folder is not None:
            self._monitor.write(self._folder)

    def write_now_and_then(self) -> None:
        """Write the file, unless that was done a short time ago: a process that is killed loses little."""
        began_s = time.monotonic()
        if self._folder is None or began_s < self._next_s:
            return
        self._monitor.write(self._folder)
        now_s = time.monotonic()
        self._next_s = now_s + max(_WRITE_AGAIN_S, _COSTS * (now_s - began_s))


def _restore(log: MonitorLog, path: Path) -> None:
    """Put the rows of a file before those to come; none of a file that is damaged."""
    try:
        with open(path, newline="", encoding="utf-8", errors="replace") as file:
            rows = [_row(row) for row in csv.DictReader(file)]
    except (OSError, ValueError, csv.Error):
        return
    if not rows:
        return
    last_ns, now_ns = rows[-1][0], time.monotonic_ns()
    # The clock began anew with the machine's boot: the file's own time says how long ago it was written.
    age_ns = max(time.time_ns() - path.stat().st_mtime_ns, 0)
    shift_ns = now_ns - age_ns - last_ns if last_ns > now_ns else 0
    for t_ns, values in rows:
        log.add(t_ns + shift_ns, values)


def _row(cells: Mapping[str, str]) -> tuple[int, list[tuple[MonitorColumn, float]]]:
    """Parse a row of a `monitor.csv`: its time in ns, and the values that it has."""
    t_ns = int(cells.get(TIME_COLUMN) or "")
    if not 0 <= t_ns < 2**62:
        raise ValueError(f"{t_ns} ns is not a time of this machine")
    named = ((name, text) for name, text in cells.items() if name and name != TIME_COLUMN and text)
    return t_ns, [(MonitorColumn.parse(name), float(text)) for name, text in named]
