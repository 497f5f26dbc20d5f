# SPDX-License-Identifier: MIT
"""Samples of the machine and of this process while it trains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ...timing import now_ns
from ..sampler import Reading
from . import _procfs
from ._system import SystemReader

DEFINITIONS = {
    "busy": "CPU time that was not idle, of all CPUs of the machine (or the container's view), since the last sample",
    "steal": "CPU time that the hypervisor gave to others while a CPU here wanted to run, of all CPUs",
    "iowait": "idle CPU time with a disk request pending, of all CPUs",
    "cpus_used": "CPU time of this process / wall time, since the last sample",
    "resident": "memory of this process that is in RAM",
    "read": "bytes this process caused to be read from storage, since it began",
    "written": "bytes this process caused to be sent to storage, since it began",
    "main_waiting": "time this process's main thread was runnable and waited for a CPU / wall time",
    "pressure_cpu": "time in which some task of the machine waited for a CPU (PSI), since the last sample",
    "pressure_memory": "time in which some task waited for memory (PSI), since the last sample",
    "pressure_io": "time in which some task waited for storage (PSI), since the last sample",
    "clock": "of the CPU: cpufreq's, else /proc/cpuinfo's",
    "power": "mean since the last sample, from RAPL's energy counter",
}


class MachineReader:
    """Reader of /proc and /sys; rates are between two calls of `read`, so the first call gives none.

    Args:
        root: root folder of the files to read; tests give another one.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cpus = sorted(os.sched_getaffinity(0))
        self._system = SystemReader(root)
        self._then_ns = 0
        self._process_s = self._waited_s = 0.0

    def forget(self) -> None:
        """Start rates anew at the next `read`, without the time between two windows."""
        self._then_ns = 0
        self._system.forget()

    def read(self) -> Iterator[Reading]:
        """Yield the current readings; quantities that this machine lacks are left out."""
        now, process_s = now_ns(), sum(os.times()[:2])
        waited = _procfs.sched_ns(_procfs.read_text(self._root / "proc/self/schedstat"))
        waited_s = waited[1] / 1e9 if waited else 0.0
        if self._then_ns:
            wall_s = max(now - self._then_ns, 1) / 1e9
            yield Reading("process", "cpus_used", (process_s - self._process_s) / wall_s, "CPUs")
            if waited:
                yield Reading("process", "main_waiting", 100 * (waited_s - self._waited_s) / wall_s, "%")
        yield from self._system.rates(now)
        yield from self._levels()
        self._then_ns, self._process_s, self._waited_s = now, process_s, waited_s

    def _levels(self) -> Iterator[Reading]:
        proc = self._root / "proc/self"
        resident = _procfs.resident_bytes(_procfs.read_text(proc / "statm"))
        if resident is not None:
            yield Reading("process", "resident", resident, "bytes")
        io = _procfs.key_values(_procfs.read_text(proc / "io"))
        for name, key in (("read", "read_bytes"), ("written", "write_bytes")):
            if key in io:
                yield Reading("process", name, io[key], "bytes")
        for cpu, hertz in _procfs.frequencies_hz(self._root, self._cpus).items():
            yield Reading(f"cpu{cpu}", "clock", hertz, "Hz")
