# SPDX-License-Identifier: MIT
"""`monitor.csv`: the load of the machine while a run went on, one row per sample, in one form for every kind of run."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .._files import write_text

MONITOR_FILE = "monitor.csv"
TIME_COLUMN = "time_ns"  # CLOCK_MONOTONIC, as in `samples.csv`
MONITORS = ("auto", "nvml", "dcgm", "none")  # sources that may be asked for
INTERVAL_S = 0.1

_SUFFIXES = {
    "%": "pct", "bytes/s": "bytes_per_s", "bytes": "bytes", "W": "w", "J": "j", "Hz": "hz", "°C": "celsius",
    "bits": "bits", "1": "count",
}  # fmt: skip


class MonitorColumn(NamedTuple):
    """A column of the file: `gpu0.power_w` is the power of gpu0 in W.

    Attributes:
        device: machine, workers, gpu0, gpu0/mig1, package-0.
        unit: %, bytes, bytes/s, W, J, Hz, °C, bits or 1; empty for one that has no suffix in the file.
    """

    device: str
    name: str
    unit: str

    def __str__(self) -> str:
        suffix = _SUFFIXES.get(self.unit, "")
        return f"{self.device}.{self.name}_{suffix}" if suffix else f"{self.device}.{self.name}"

    @classmethod
    def parse(cls, text: str) -> MonitorColumn:
        """Read a column's name, as `str` writes it."""
        device, _, name = text.partition(".")
        for unit, suffix in _SUFFIXES.items():
            if name.endswith(f"_{suffix}"):
                return cls(device, name.removesuffix(f"_{suffix}"), unit)
        return cls(device, name, "")


class MonitorLog:
    """Samples in memory, eight bytes a value: an hour of thirty columns is 9 MB."""

    def __init__(self) -> None:
        self._times_ns = array("q")
        self._columns: dict[MonitorColumn, array[float]] = {}
        self._whole = threading.Lock()  # around a row: it is added in a thread of its own

    def __len__(self) -> int:
        return len(self._times_ns)

    @property
    def columns(self) -> list[MonitorColumn]:
        """Columns that have been seen."""
        return list(self._columns)

    def add(self, t_ns: int, values: Iterable[tuple[MonitorColumn, float]]) -> None:
        """Add a row. The later value of a column that comes twice counts; a column that is absent is empty."""
        found = dict(values)
        with self._whole:
            for column in found.keys() - self._columns.keys():
                self._columns[column] = array("d", [math.nan]) * len(self)
            self._times_ns.append(t_ns)
            for column, kept in self._columns.items():
                kept.append(found.get(column, math.nan))

    def text(self, leave_out: Iterable[str] = ()) -> str:
        """Text of the file, without the devices in `leave_out`; columns in order of their names."""
        without = frozenset(leave_out)
        with self._whole:
            kept = {str(c): values for c, values in self._columns.items() if c.device.split("/")[0] not in without}
            names = sorted(kept)
            rows = zip(self._times_ns, *(kept[name] for name in names), strict=True)
            lines = [
                ",".join([str(t_ns), *("" if math.isnan(value) else f"{value:.12g}" for value in values)])
                for t_ns, *values in rows
            ]
        return "\n".join([",".join([TIME_COLUMN, *names]), *lines, ""])

    def write(self, directory: Path, leave_out: Iterable[str] = ()) -> None:
        """Write `monitor.csv` whole or not at all; nothing where nothing was observed.

        Raises:
            OutputError: it cannot be written.
        """
        if len(self):
            write_text(directory / MONITOR_FILE, self.text(leave_out))
