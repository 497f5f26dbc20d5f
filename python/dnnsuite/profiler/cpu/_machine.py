# SPDX-License-Identifier: MIT
"""Samples of the machine and of this process while it trains: psutil's, and from /proc and /sys what psutil lacks.

A quantity that cannot be read is left out, never an exception.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from ...timing import now_ns
from ..sampler import Reading


def read_text(path: Path) -> str:
    """Read the text of a file; empty if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def sched_ns(schedstat: str) -> tuple[int, int] | None:
    """Parse (time on a CPU, time runnable without one), ns, from a thread's schedstat."""
    words = schedstat.split()
    return (int(words[0]), int(words[1])) if len(words) == 3 and all(w.isdecimal() for w in words) else None


def pressure(text: str) -> dict[str, int]:
    """Parse stalled time, µs since boot, of a file of /proc/pressure by `some` and `full`."""
    return {kind: int(us) for kind, us in re.findall(r"^(some|full) .*\btotal=(\d+)$", text, re.MULTILINE)}


def frequencies_hz(root: Path, cpus: list[int]) -> dict[int, float]:
    """Read the clock of each CPU from cpufreq, else from /proc/cpuinfo if the kernel measures it (`cpu MHz`)."""
    found = {}
    for cpu in cpus:
        khz = read_text(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq").strip()
        if khz.isdecimal():
            found[cpu] = int(khz) * 1e3
    if found:
        return found
    pattern = re.compile(r"^processor\s*:\s*(\d+)$|^cpu MHz\s*:\s*([\d.]+)$", re.MULTILINE)
    cpu = -1
    for number, mhz in pattern.findall(read_text(root / "proc/cpuinfo")):
        if number:
            cpu = int(number)
        elif cpu in cpus and re.fullmatch(r"\d+(\.\d+)?", mhz):
            found[cpu] = float(mhz) * 1e6
    return found


def rapl_j(root: Path) -> dict[str, tuple[float, float]]:
    """Read the energy counters of package, cores and memory if the kernel shows them (powercap, RAPL).

    Returns:
        {zone: (J so far, J at which the counter begins again)}; zones as `package-0`, `package-0/dram`.
    """
    found = {}
    folder = root / "sys/class/powercap"
    for zone in sorted(folder.glob("intel-rapl:*")) if folder.is_dir() else []:
        energy, top = (read_text(zone / name).strip() for name in ("energy_uj", "max_energy_range_uj"))
        name = read_text(zone / "name").strip()
        if not (energy.isdecimal() and top.isdecimal() and name):
            continue
        if zone.name.count(":") > 1:
            parent = read_text(folder / zone.name.rsplit(":", 1)[0] / "name").strip()
            name = f"{parent}/{name}"
        found[name] = (int(energy) / 1e6, int(top) / 1e6)
    return found


_PRESSURES = ("cpu", "memory", "io")
_TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # the others are parts of these


class SystemReader:
    """Reader of the kernel's counters for the machine.

    Rates are computed between two calls of `rates`, so the first call gives none.

    Args:
        root: folder that contains `proc` and `sys`, for values that psutil does not read.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._has_rapl = root, (root / "sys/class/powercap").is_dir()
        self._before: dict[str, float] = {}
        self._then_ns = 0

    def forget(self) -> None:
        """Forget the last counters, so that the next call of `rates` gives none."""
        self._before, self._then_ns = {}, 0

    def rates(self, now_ns: int) -> Iterator[Reading]:
        """Yield CPU use, pressure and power since the last call. Quantities that the machine does not have are left
        out."""
        before, wall_s = self._before, max(now_ns - self._then_ns, 1) / 1e9
        now = self._counters()
        self._before, self._then_ns = now, now_ns
        grown = {key: value - before[key] for key, value in now.items() if key in before}
        times = {key[4:]: max(0.0, value) for key, value in grown.items() if key.startswith("cpu.")}
        total = sum(times.values())
        if total > 0:  # shorter than the kernel's tick otherwise
            idle = times.get("idle", 0.0) + times.get("iowait", 0.0)
            yield Reading("machine", "busy", 100 * (total - idle) / total, "%")
            for name in ("steal", "iowait"):
                yield Reading("machine", name, 100 * times.get(name, 0.0) / total, "%")
        for key, value in grown.items():
            kind, _, which = key.partition(".")
            if kind == "pressure":
                yield Reading("machine", f"pressure_{which}", 100 * value / wall_s, "%")
            elif kind == "energy":
                joules = value if value >= 0 else value + now[f"top.{which}"]  # the counter began again
                yield Reading(which, "power", joules / wall_s, "W")

    def memory(self) -> Iterator[Reading]:
        """Yield the memory available to programs, and the memory in use."""
        found = psutil.virtual_memory()
        yield Reading("machine", "memory_used", found.total - found.available, "bytes")
        yield Reading("machine", "memory_available", found.available, "bytes")

    def _counters(self) -> dict[str, float]:
        """Read the counters that only grow, in seconds or joules."""
        counters: dict[str, float] = {}
        with suppress(OSError):  # a sandbox without /proc/stat
            times = psutil.cpu_times()
            counters = {f"cpu.{name}": getattr(times, name) for name in _TIMES if hasattr(times, name)}
        for name in _PRESSURES:
            stalled = pressure(read_text(self._root / "proc/pressure" / name))
            if "some" in stalled:
                counters[f"pressure.{name}"] = stalled["some"] / 1e6
        zones = rapl_j(self._root) if self._has_rapl else {}
        for zone, (energy, top) in zones.items():
            counters[f"energy.{zone}"], counters[f"top.{zone}"] = energy, top
        return counters


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
    """Reader of the machine and this process; rates are between two calls of `read`, so the first call gives none.

    Args:
        root: root folder of the files to read, for what psutil does not read; tests give another one.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cpus = sorted(os.sched_getaffinity(0))
        self._system, self._process = SystemReader(root), psutil.Process()
        self._then_ns = 0
        self._process_s = self._waited_s = 0.0

    def forget(self) -> None:
        """Restart rates at the next `read`, without the time between two windows."""
        self._then_ns = 0
        self._system.forget()

    def read(self) -> Iterator[Reading]:
        """Yield the current readings; quantities that this machine lacks are left out."""
        now, process_s = now_ns(), sum(os.times()[:2])
        waited = sched_ns(read_text(self._root / "proc/self/schedstat"))
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
        yield Reading("process", "resident", self._process.memory_info().rss, "bytes")
        with suppress(psutil.Error, NotImplementedError):  # containers may forbid it
            io = self._process.io_counters()
            yield Reading("process", "read", io.read_bytes, "bytes")
            yield Reading("process", "written", io.write_bytes, "bytes")
        for cpu, hertz in frequencies_hz(self._root, self._cpus).items():
            yield Reading(f"cpu{cpu}", "clock", hertz, "Hz")
