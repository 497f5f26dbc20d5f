# SPDX-License-Identifier: MIT
"""Load of the whole machine: CPU time, pressure, energy and memory, from /proc and /sys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..sampler import Reading
from . import _procfs

_PRESSURES = ("cpu", "memory", "io")


class SystemReader:
    """Reader of the kernel's counters for the machine; rates are between two calls of `rates`, so the first gives none.

    Args:
        root: folder that holds `proc` and `sys`.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        proc = root / "proc"
        self._root, self._has_rapl = root, (root / "sys/class/powercap").is_dir()
        self._stat, self._memory = _procfs.KeptFile(proc / "stat"), _procfs.KeptFile(proc / "meminfo", 256)
        self._pressures = {name: _procfs.KeptFile(proc / "pressure" / name) for name in _PRESSURES}
        self._before: dict[str, float] = {}
        self._then_ns = 0

    def forget(self) -> None:
        """Start rates anew at the next call."""
        self._before, self._then_ns = {}, 0

    def rates(self, now_ns: int) -> Iterator[Reading]:
        """Yield CPU use, pressure and power since the last call; quantities that the machine lacks are left out."""
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
        """Yield memory available to programs, and memory in use."""
        found = _procfs.key_values(self._memory.text())
        if "MemTotal" in found and "MemAvailable" in found:
            used = found["MemTotal"] - found["MemAvailable"]
            yield Reading("machine", "memory_used", used, "bytes")
            yield Reading("machine", "memory_available", found["MemAvailable"], "bytes")

    def _counters(self) -> dict[str, float]:
        """Read the counters that only grow, in seconds or joules."""
        counters = {f"cpu.{k}": v for k, v in _procfs.cpu_times_s(self._stat.text()).items()}
        for name, file in self._pressures.items():
            stalled = _procfs.pressure(file.text())
            if "some" in stalled:
                counters[f"pressure.{name}"] = stalled["some"] / 1e6
        zones = _procfs.rapl_j(self._root) if self._has_rapl else {}
        for zone, (energy, top) in zones.items():
            counters[f"energy.{zone}"], counters[f"top.{zone}"] = energy, top
        return counters
