# SPDX-License-Identifier: MIT
"""Samples of the machine and of this process while it trains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ...timing import now_ns
from ..sampler import Reading
from . import _procfs

__all__ = ["DEFINITIONS", "MachineReader"]

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
_PRESSURES = ("cpu", "memory", "io")


class MachineReader:
    """Reads /proc and /sys; rates are between two calls of `read`, so the first call gives none.

    Args:
        root: where the files are read; tests give another one.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cpus = sorted(os.sched_getaffinity(0))
        self._before: dict[str, float] = {}
        self._then_ns = 0
        self._process_s = 0.0

    def forget(self) -> None:
        """The next rates begin at the next `read`: nothing of the time between two windows is in them."""
        self._before, self._then_ns = {}, 0

    def read(self) -> Iterator[Reading]:
        """Yield the readings of now; quantities that this machine lacks are left out."""
        now, process_s = now_ns(), sum(os.times()[:2])
        counters = self._counters()
        if self._then_ns:
            wall_s = max(now - self._then_ns, 1) / 1e9
            yield Reading("process", "cpus_used", (process_s - self._process_s) / wall_s, "CPUs")
            yield from self._rates(counters, wall_s)
        yield from self._levels()
        self._before, self._then_ns, self._process_s = counters, now, process_s

    def _counters(self) -> dict[str, float]:
        """Everything that only grows, s or J."""
        proc = self._root / "proc"
        counters = {f"cpu.{k}": v for k, v in _procfs.cpu_times_s(_procfs.read_text(proc / "stat")).items()}
        waited = _procfs.sched_ns(_procfs.read_text(proc / "self/schedstat"))
        if waited:
            counters["waited"] = waited[1] / 1e9
        for name in _PRESSURES:
            stalled = _procfs.pressure(_procfs.read_text(proc / "pressure" / name))
            if "some" in stalled:
                counters[f"pressure.{name}"] = stalled["some"] / 1e6
        for zone, (energy, top) in _procfs.rapl_j(self._root).items():
            counters[f"energy.{zone}"], counters[f"top.{zone}"] = energy, top
        return counters

    def _rates(self, now: dict[str, float], wall_s: float) -> Iterator[Reading]:
        grown = {key: value - self._before[key] for key, value in now.items() if key in self._before}
        times = {key[4:]: max(0.0, value) for key, value in grown.items() if key.startswith("cpu.")}
        total = sum(times.values())
        if total > 0:  # shorter than the kernel's tick otherwise
            idle = times.get("idle", 0.0) + times.get("iowait", 0.0)
            yield Reading("machine", "busy", 100 * (total - idle) / total, "%")
            for name in ("steal", "iowait"):
                yield Reading("machine", name, 100 * times.get(name, 0.0) / total, "%")
        for key, value in grown.items():
            kind, _, which = key.partition(".")
            if kind == "waited":
                yield Reading("process", "main_waiting", 100 * value / wall_s, "%")
            elif kind == "pressure":
                yield Reading("machine", f"pressure_{which}", 100 * value / wall_s, "%")
            elif kind == "energy":
                joules = value if value >= 0 else value + now[f"top.{which}"]  # the counter began again
                yield Reading(which, "power", joules / wall_s, "W")

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
