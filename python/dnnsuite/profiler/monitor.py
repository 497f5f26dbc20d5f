# SPDX-License-Identifier: MIT
"""Monitor of a run: a thread that samples machine, workers and GPUs ten times a second, for `monitor.csv`.

It runs in the process that started the workers and waits for them, on the CPUs that this process may use: outside of
every share where workers are confined to some, and beside them where they have the whole machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from .. import host
from .._runs.monitor import INTERVAL_S, MONITORS, MonitorColumn, MonitorLog
from ..errors import Unavailable, check_choice
from .cpu import SystemReader
from .dcgm import DcgmStream
from .nvml import SLOWED, NvmlInstrument
from .sampler import Reading, Sampler

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Settings and limits of a GPU: the same in every row.
_CONSTANT = frozenset({"memory_total", "memory_reserved", "power_limit", "sm_clock_max", "memory_clock_max"})
# Counted from this process, which computes nothing.
_OF_THIS_PROCESS = frozenset({"other_processes", "other_memory"})


class WorkersReader:
    """CPU time and memory of processes and the children that their main threads forked."""

    def __init__(self) -> None:
        self._leaders: list[int] = []
        self._before_ns: dict[int, int] = {}
        self._then_ns = 0

    def follow(self, pid: int) -> None:
        """Read this process from the next reading on."""
        self._leaders.append(pid)

    def read(self, now_ns: int) -> Iterator[Reading]:
        """Yield `cpu` since the last call, 100 % being one CPU as `pidstat` has it, and `resident` memory."""
        if not self._leaders:
            return
        used_ns, before_ns = {}, self._before_ns
        resident = 0
        for pid in host.family(self._leaders):
            with suppress(OSError):  # it has ended
                used_ns[pid] = time.clock_gettime_ns((~pid << 3) | 2)  # its CPU clock: clock_getcpuclockid(3)
                resident += int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE_BYTES
        if self._then_ns:
            grown_ns = sum(value - before_ns.get(pid, 0) for pid, value in used_ns.items())
            yield Reading("workers", "cpu", 100 * grown_ns / max(now_ns - self._then_ns, 1), "%")
        yield Reading("workers", "resident", resident, "bytes")
        self._before_ns, self._then_ns = used_ns, now_ns


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


class _Source(Protocol):
    def open(self) -> None: ...
    def read(self) -> Iterator[Reading]: ...
    def close(self) -> None: ...


def check_monitor(kind: str) -> str:
    """Return `kind` if it is a monitor that works here.

    Raises:
        InvalidArgument: it is none of `MONITORS`.
        Unavailable: its source was asked for by name and does not answer.
    """
    check_choice("--monitor", kind, MONITORS)
    if kind in ("nvml", "dcgm"):
        with Monitor(kind):
            pass
    return kind


class Monitor:
    """Sampler of the machine while its `with` block is open.

    Args:
        kind: `auto`: the machine and, where there are GPUs, NVML, with DCGM for a GPU without GPM where dcgmi runs;
            `nvml`, `dcgm`: the same, and an error where that does not answer; `none`: nothing.
        cpus: CPUs that the thread may run on; by default those of this process.
        gpus: False leaves the GPUs of the machine alone, unless `kind` names a source.
        counters: False leaves GPUs' counters alone, which DCGM holds before Hopper, unless `kind` is `dcgm`.

    Raises:
        InvalidArgument: an unknown kind.
    """

    def __init__(
        self,
        kind: str = "auto",
        cpus: Collection[int] = (),
        gpus: bool = True,
        counters: bool = True,
        interval_s: float = INTERVAL_S,
    ) -> None:
        check_choice("monitor", kind, MONITORS)
        self.kind, self._cpus, self._gpus = kind, frozenset(cpus), gpus
        self._counters = counters
        self.log = MonitorLog()
        self._system, self._workers = SystemReader(), WorkersReader()
        self._sampler = Sampler(
            "monitor", self._read, interval_s,
            lambda t_ns, found: self.log.add(t_ns, ((MonitorColumn(r.device, r.name, r.unit), r.value) for r in found)),
        )  # fmt: skip
        self._sources: list[_Source] = []
        self._names: list[str] = []
        self._notes: list[str] = []
        self._placed = False

    def __enter__(self) -> Monitor:
        if self.kind != "none":
            try:
                self._open()
            except BaseException:
                self._close()
                raise
            self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sampler.stop()
        self._close()

    def follow(self, pid: int) -> None:
        """Count this worker's use of CPUs and memory."""
        self._workers.follow(pid)

    def write(self, directory: Path, gpus: Collection[int] | None = None) -> None:
        """Write `monitor.csv` into the run's directory. Call it after the `with` block.

        Args:
            gpus: numbers of the GPUs that the run could use; the others are left out. None keeps all.

        Raises:
            OutputError: it cannot be written.
        """
        devices = {column.device.split("/")[0] for column in self.log.columns}
        mine = {f"gpu{number}" for number in gpus} if gpus is not None else devices
        self.log.write(directory, {name for name in devices - mine if name.startswith("gpu")})

    def record(self) -> dict[str, Any]:
        """Facts on the sampling, for the record of a run: sources, samples, cost, and remarks."""
        sampler = self._sampler
        return {
            "kind": self.kind,
            "sources": self._names,
            "interval_s": sampler.interval_s,
            "samples": len(self.log),
            "missed": sampler.missed,
            "cpu_pct": 100 * sampler.cpu_ns / sampler.lasted_ns if sampler.lasted_ns else None,
            "notes": [*self._notes, *([str(sampler.failure)] if sampler.failure else [])],
        }

    def _open(self) -> None:
        self._names.append("machine")
        if self.kind == "auto" and not self._gpus:
            return
        has_gpus = self._try("nvml", NvmlInstrument(), self.kind == "nvml")
        may = has_gpus and self.kind == "auto" and self._counters
        if self.kind == "dcgm" or (may and not any(r.name.startswith("gpm_") for r in self._sources[0].read())):
            self._try("dcgm", DcgmStream(), self.kind == "dcgm")

    def _try(self, name: str, source: _Source, is_needed: bool) -> bool:
        """Open a source; where it is not needed, one that does not answer is a remark."""
        try:
            source.open()
        except Unavailable as error:
            if is_needed:
                raise
            self._notes.append(f"{name}: {error}")
            return False
        self._sources.append(source)
        self._names.append(name)
        return True

    def _close(self) -> None:
        for source in self._sources:
            if isinstance(source, NvmlInstrument):
                self._notes += source.notes()
            source.close()
        self._sources.clear()

    def _read(self) -> Iterator[Reading]:
        if not self._placed:
            self._placed = True
            if self._cpus:
                with suppress(OSError):  # not allowed: it stays where the process is
                    os.sched_setaffinity(0, self._cpus)  # of this thread alone
        now_ns = time.monotonic_ns()
        yield from self._system.rates(now_ns)
        yield from self._system.memory()
        yield from self._workers.read(now_ns)
        for source in self._sources:
            for reading in source.read():
                if reading.name in _CONSTANT or reading.name in _OF_THIS_PROCESS:
                    continue
                yield reading
                if reading.name == "clock_reasons":
                    slowed = 100.0 * bool(int(reading.value) & SLOWED)
                    yield Reading(reading.device, "throttled", slowed, "%")
