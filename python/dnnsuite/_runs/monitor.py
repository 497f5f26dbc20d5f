# SPDX-License-Identifier: MIT
"""The load of the machine: `monitor.csv`, one row per sample while a run went on; and neighbours: what other processes
take of the CPUs that a measurement uses, and the CPUs that they leave free.

The kernel counts the busy time of each CPU, in ticks of 10 ms. Less what the measured processes used themselves, it is
the neighbours'. Time that a hypervisor gave to other machines counts as theirs.
"""

from __future__ import annotations

import math
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
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


_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_QUIET = 0.05  # share of the cores that others may use in a block
_QUIET_TICKS = 2.5  # what counting ticks alone makes of nothing
_LOOK_S = 1.0  # of a look at the machine before something is started
_TAKEN = 0.25  # of a core, from which on it is not counted as free
# Columns of /proc/stat that are time at work: user, nice, system, irq, softirq, steal. Guests are in user already.
_BUSY = (0, 1, 2, 5, 6, 7)


class Reading(NamedTuple):
    """Seconds that CPUs were busy for anybody since the machine started, and when that was read."""

    t_s: float
    busy_s: float


@dataclass(frozen=True)
class Cores:
    """CPUs that a measurement uses.

    Attributes:
        cpus: their numbers.
        of: CPUs that this process may use.
        others: time that others used, in CPUs.
    """

    cpus: tuple[int, ...]
    of: int
    others: float

    @property
    def shared(self) -> bool:
        """True if neighbours have some of the machine's CPUs."""
        return len(self.cpus) < self.of

    @property
    def by_cpu_time(self) -> bool:
        """True if rates are taken by CPU time: on one core beside neighbours its work is the same, its wait is not."""
        return self.shared and len(self.cpus) == 1

    def __str__(self) -> str:
        if not self.shared:
            return f"{self.of} core{'s' * (self.of > 1)}"
        return f"{len(self.cpus)} of {self.of} cores, others used {self.others:.1f}"


class Watch:
    """Watch of some CPUs around blocks: ``before = watch.read(); ...; watch.disturbed(before, own_s)``.

    Args:
        cpus: CPUs that the blocks run on; by default all that this process may use.
        root: root folder of the files to read; tests give another one.
    """

    def __init__(self, cpus: Sequence[int] | None = None, root: Path = Path("/")) -> None:
        self.cpus = tuple(sorted(os.sched_getaffinity(0) if cpus is None else cpus))
        self._stat = root / "proc/stat"

    def read(self) -> Reading:
        """Read the CPUs' busy time now."""
        return Reading(time.monotonic(), sum(self.busy_s().values()))

    def busy_s(self) -> dict[int, float]:
        """Busy seconds of each CPU so far; nothing where the system does not tell."""
        found = {}
        with suppress(OSError):
            for line in self._stat.read_text(encoding="ascii").splitlines():
                name, *columns = line.split()
                if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in self.cpus:
                    found[int(name[3:])] = sum(int(columns[i]) for i in _BUSY if i < len(columns)) * _TICK_S
        return found

    def others_s(self, before: Reading, own_s: float) -> tuple[float, float]:
        """Return (CPU seconds that others used since `before`, CPU seconds that there were).

        Args:
            own_s: CPU seconds that the measured processes used meanwhile.
        """
        now = self.read()
        return max(0.0, now.busy_s - before.busy_s - own_s), (now.t_s - before.t_s) * len(self.cpus)

    def disturbed(self, before: Reading, own_s: float) -> str:
        """Say what disturbed a block that began at `before`; empty if nothing did."""
        if _ignored():
            return ""
        theirs_s, there_s = self.others_s(before, own_s)
        if theirs_s <= max(_QUIET * there_s, _QUIET_TICKS * _TICK_S):
            return ""
        cores = len(self.cpus)
        used = f"{cores * min(1.0, theirs_s / there_s):.1f}"
        return f"other processes used {used} of {cores} core{'s' * (cores > 1)}"


def _ignored() -> bool:
    """True where the user says that what others do does not matter, as on a machine that counts their time wrongly."""
    return os.environ.get("DNNSUITE_NEIGHBOURS") == "ignore"


def all_cores() -> Cores:
    """Return all CPUs that this process may use, also those that neighbours use."""
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return Cores(cpus, len(cpus), 0.0)


def free_cores(asked: int | None = None, root: Path = Path("/"), sleep: Callable[[float], None] = time.sleep) -> Cores:
    """Look at the machine for a second; return the CPUs that neighbours leave free, one at least.

    Args:
        asked: CPUs that are wanted; by default all that this process may use.
    """
    if _ignored():
        return all_cores()
    watch = Watch(root=root)
    there = len(watch.cpus)
    before, own_s, began_s = watch.busy_s(), time.process_time(), time.monotonic()
    sleep(_LOOK_S)
    seconds = max(time.monotonic() - began_s, 1e-3)
    used = {cpu: (busy_s - before.get(cpu, 0.0)) / seconds for cpu, busy_s in watch.busy_s().items()}
    others = min(there, max(0.0, sum(used.values()) - (time.process_time() - own_s) / seconds))  # ticks are coarse
    free = max(1, math.floor(there - others + _TAKEN))
    wanted = min(free, asked or there)
    if free >= there:
        return Cores(watch.cpus, there, others)
    idle_first = sorted(watch.cpus, key=lambda cpu: (used.get(cpu, 0.0), cpu))
    return Cores(tuple(sorted(idle_first[:wanted])), there, others)


def cpu_tree_s(pid: int) -> float:
    """CPU seconds that the children of a process, and theirs, have used so far; 0 where the system does not tell."""
    total = 0.0
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                with suppress(OSError, IndexError, ValueError):
                    fields = Path(f"/proc/{child}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                    total += (int(fields[11]) + int(fields[12])) * _TICK_S
                total += cpu_tree_s(int(child))
    return total
