# SPDX-License-Identifier: MIT
"""Parsers of /proc and /sys. A line that is not understood is left out, never an exception."""

from __future__ import annotations

import os
import re
from pathlib import Path

_TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_text(path: Path) -> str:
    """Read the text of a file; empty if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


class KeptFile:
    """File of /proc that is read ten times a second: kept open, which takes a third of the time of opening it each
    time.

    Args:
        path: the file.
        most_bytes: most bytes to read, from its beginning.
    """

    def __init__(self, path: Path, most_bytes: int = 4096) -> None:
        self._path, self._most_bytes = path, most_bytes
        self._file: int | None = None

    def text(self) -> str:
        """Return its present text; empty when it cannot be read."""
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._file, self._most_bytes, 0).decode(errors="replace")
        except OSError:
            self.close()
            return ""

    def close(self) -> None:
        """Close it; the next `text` opens it again."""
        opened, self._file = self._file, None
        if opened is not None:
            os.close(opened)

    __del__ = close


def cpu_times_s(stat: str) -> dict[str, float]:
    """Parse seconds since boot, summed over CPUs, by use: the first line of /proc/stat (proc_stat(5)).

    `steal` is time that the hypervisor gave to others while a CPU here was ready to run. Kernels that count fewer
    columns give fewer keys.
    """
    found = re.match(r"cpu +(\d+(?: \d+)*)", stat)
    return dict(zip(_TIMES, (int(word) / _TICKS_PER_S for word in found[1].split()), strict=False)) if found else {}


def key_values(text: str) -> dict[str, int]:
    """Parse lines `key: number`, `kB` converted to bytes: /proc/self/io, /proc/self/status."""
    values = {}
    for key, number, unit in re.findall(r"^(\w+):\s+(\d+)( kB)?$", text, re.MULTILINE):
        values[key] = int(number) * (1024 if unit else 1)
    return values


def resident_bytes(statm: str) -> int | None:
    """Parse resident memory from /proc/self/statm: its second number, in pages."""
    words = statm.split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 and words[1].isdecimal() else None


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
