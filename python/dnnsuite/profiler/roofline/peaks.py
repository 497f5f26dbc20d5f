# SPDX-License-Identifier: MIT
"""Peaks of this machine, measured once: matrix products in fp32 and bf16, and STREAM's triad in every cache.

The caches are those that the kernel describes. Contention for the CPUs meanwhile is measured by timing fixed arithmetic
on all of them at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ... import host
from ..._C import parse_cpu_list, spin, stream_triad
from ..._files import cache_folder, read_json, write_json
from ..._torch_threads import torch_threads
from ...errors import Error, InvalidArgument
from ...timing import now_ns

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MEMORY_TIMES = 4  # STREAM's rule: arrays of four times the last cache
_LEAST_MEMORY_BYTES, _MOST_MEMORY_BYTES = 64 << 20, 1 << 30


class CacheLevel(NamedTuple):
    """Level of memory: its size for `threads` threads, and the size of arrays that measure it."""

    name: str
    capacity_bytes: int  # of all threads together; the largest int for memory
    test_bytes_per_thread: int


def levels(cpus: list[int], root: Path = Path("/"), memory_bytes: int | None = None) -> list[CacheLevel]:
    """List L1, L2, ... and memory, for one thread on each of `cpus`.

    Args:
        cpus: CPUs of the threads.
        root: folder of `proc` and `sys`, for tests.
        memory_bytes: most memory for the largest arrays; by default a quarter of the available memory.

    A cache is measured with arrays of half its size. One that is no more than twice the size of the level before is
    left out: half of it would be in that one.
    """
    found: list[CacheLevel] = []
    largest = 0
    for number, size, sharing in _data_caches(cpus[0], root):
        mine = [cpu for cpu in cpus if cpu in sharing] or cpus[:1]
        per_thread = size // len(mine)
        largest = size
        if found and per_thread <= 2 * 2 * found[-1].test_bytes_per_thread:
            continue
        groups = -(-len(cpus) // len(mine))
        found.append(CacheLevel(f"L{number}", size * groups, per_thread // 2))
    room = memory_bytes if memory_bytes is not None else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    wanted = min(max(_MEMORY_TIMES * largest, _LEAST_MEMORY_BYTES), _MOST_MEMORY_BYTES, room)
    return [*found, CacheLevel("memory", (1 << 63) - 1, max(wanted // len(cpus), 1 << 20))]


def _data_caches(cpu: int, root: Path) -> list[tuple[int, int, list[int]]]:
    """List (level, bytes, CPUs that share it) of each data or unified cache, smallest first."""
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache"
    caches = []
    for index in sorted(folder.glob("index*")):
        try:
            kind, level, size, sharing = (
                (index / name).read_text().strip() for name in ("type", "level", "size", "shared_cpu_list")
            )
            number = re.fullmatch(r"(\d+)([KMG]?)", size)
            if kind != "Instruction" and number and level.isdigit():
                caches.append((int(level), int(number[1]) * _UNITS[number[2]], parse_cpu_list(sharing)))
        except (OSError, InvalidArgument):
            continue
    return sorted(caches)


_ITERATIONS = 2_000_000  # some milliseconds
_ROUNDS = 3
_BUSY = 1.10  # slower than alone by more: a measurement says as much about the neighbours


@dataclass(frozen=True)
class Contention:
    """Slowdown of arithmetic, now compared with alone.

    `slowdown` is wall time divided by the smallest CPU time that was ever measured here for the same work and threads;
    it is 1 without contention. `waiting_pct` is the percentage of the wall time in which the threads were runnable but
    had no CPU.
    """

    slowdown: float
    waiting_pct: float
    threads: int

    @property
    def busy(self) -> bool:
        """True if other work used the CPUs."""
        return self.slowdown > _BUSY

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "busy": self.busy}

    def __str__(self) -> str:
        if not self.busy:
            return f"alone (arithmetic takes {self.slowdown:.2f} times as long as its best)"
        return (
            f"contention: arithmetic takes {self.slowdown:.2f} times as long as alone, "
            f"{self.waiting_pct:.0f} % of it waiting for a CPU"
        )


def probe_contention(threads: int, key: str) -> Contention:
    """Time arithmetic on `threads` threads at once, and keep the shortest time in the cache.

    Args:
        threads: number of threads, equal to that of the work to be measured.
        key: the machine, as in `Peaks`; values of another machine do not apply.

    Raises:
        InvalidArgument: `threads` is below 1.
    """
    if threads < 1:
        raise InvalidArgument(f"threads must be 1 or more, got {threads}")
    walls, cpus = zip(*(_round(threads) for _ in range(_ROUNDS)), strict=True)
    best_ns = _least_seen(f"{key}-{threads}", min(min(cpu) for cpu in cpus))
    wall_ns = sorted(max(wall) for wall in walls)[_ROUNDS // 2]
    total_wall = sum(map(sum, walls))
    waiting = 100 * max(0.0, 1 - sum(map(sum, cpus)) / total_wall)
    return Contention(wall_ns / best_ns, waiting, threads)


def _round(threads: int) -> tuple[list[int], list[int]]:
    """Time (wall ns, CPU ns) of each thread."""
    found: list[tuple[int, int]] = []
    gate = threading.Barrier(threads)

    def work() -> None:
        gate.wait()
        found.append(spin(_ITERATIONS))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [wall for wall, _ in found], [cpu for _, cpu in found]


def _least_seen(key: str, now_ns: int) -> int:
    """Return the smaller of this value and the cached one; an unusable cache counts as none."""
    path = cache_folder() / "spin.json"
    try:
        found = read_json(path)
    except Error:
        found = {}
    known = found if isinstance(found, dict) else {}
    before = known.get(key)
    least = min(before, now_ns) if isinstance(before, int) and before > 0 else now_ns
    if least != before:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {**known, key: least})
        except (Error, OSError):
            return least
    return least


_VERSION = 1  # of the file: older ones are measured again
SIZES = (512, 1024, 2048)
GEMM_S, _TRIAD_NS, _REPEATS = 0.3, 10_000_000, 7
_SLOW_S = 1.0  # a product that takes longer says that larger ones need not be tried


@dataclass(frozen=True)
class Peaks:
    """Highest rates, measured with `threads` threads on this machine.

    `flops_per_s` is by precision (`fp32`, `bf16`), `bytes_per_s` and `capacity_bytes` are by level (`L1`, `L2`, `L3`,
    `memory`). `contention` is that of the measurement; if it was not 1, the true peaks are higher.
    """

    machine: dict[str, Any]
    threads: int
    flops_per_s: dict[str, float]
    bytes_per_s: dict[str, float]
    capacity_bytes: dict[str, int]
    contention: Contention
    measured_at: str
    from_cache: bool = field(default=False, compare=False)

    def level_of(self, size: float) -> str:
        """Return the smallest level that holds `size` bytes, the fastest place that operands of that size can be in."""
        return next((name for name, room in self.capacity_bytes.items() if size <= room), "memory")

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "contention": self.contention.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Peaks:
        """Make peaks from a result of `to_dict`. Raises KeyError, TypeError or ValueError for other values."""
        seen = values["contention"]
        contention = Contention(float(seen["slowdown"]), float(seen["waiting_pct"]), int(seen["threads"]))
        roofs = {
            name: {key: float(value) for key, value in values[name].items()} for name in ("flops_per_s", "bytes_per_s")
        }
        if not all(value > 0 for roof in roofs.values() for value in roof.values()):
            raise ValueError("a roof is not positive")
        capacities = {key: int(value) for key, value in values["capacity_bytes"].items()}
        given = {**values, **roofs, "threads": int(values["threads"]), "capacity_bytes": capacities}
        return cls(**given | {"contention": contention, "from_cache": True})


def machine_key(threads: int) -> dict[str, Any]:
    """Return the properties that peaks depend on: they are measured again when any of them changes."""
    described = host.describe()
    return {
        "cpu_model": described["cpu_model"],
        "cpus_allowed": described["cpus_allowed"],
        "threads": threads,
        "torch": host.versions().get("torch", ""),
        "version": _VERSION,
    }


def measure_peaks(
    threads: int | None = None, refresh: bool = False, report: Callable[[str], None] = lambda text: None
) -> Peaks:
    """Return the peaks of this machine, from the cache, or measured (which takes some seconds) and cached.

    Peaks that were measured on a busy machine are measured again once it is quiet.

    Args:
        threads: number of threads; by default one on each CPU that this process may use.
        refresh: measure again. The better of two measurements counts, because other work can only lower one.
        report: function that is called with a line of text before each measurement.

    Raises:
        InvalidArgument: there are fewer CPUs than `threads`.
    """
    cpus = sorted(os.sched_getaffinity(0))
    threads = len(cpus) if threads is None else threads
    if not 1 <= threads <= len(cpus):
        raise InvalidArgument(f"threads must be between 1 and {len(cpus)}, the CPUs allowed; got {threads}")
    machine = machine_key(threads)
    path = peaks_file(machine)
    known = _load(path, machine)
    # A measurement on a busy machine can be better once it is quiet.
    if (
        known is not None
        and not refresh
        and (not known.contention.busy or probe_contention(threads, digest(known.machine)).busy)
    ):
        return known
    found = measure_machine(machine, cpus[:threads], report)
    if known is not None:
        found = _better(found, known)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, found.to_dict())
    except (Error, OSError) as error:
        report(f"the peaks are not kept: {error}")
    return found


def digest(machine: dict[str, Any]) -> str:
    """Return a short hash of the properties that peaks depend on."""
    return hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:16]


def known_peaks(threads: int) -> Peaks | None:
    """Return cached peaks of this machine with `threads` threads; None if there are none."""
    machine = machine_key(threads)
    return _load(peaks_file(machine), machine)


def peaks_file(machine: dict[str, Any]) -> Path:
    """Return the path of the cached peaks of `machine`."""
    return cache_folder() / "peaks" / f"{digest(machine)}.json"


def _load(path: Path, machine: dict[str, Any]) -> Peaks | None:
    """Read the peaks of exactly this machine; None where the file is absent or damaged."""
    try:
        found = Peaks.from_dict(read_json(path))
    except (Error, AttributeError, KeyError, TypeError, ValueError):
        return None
    return found if found.machine == machine else None


def _better(one: Peaks, other: Peaks) -> Peaks:
    def most(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
        return {key: max(value, b.get(key, 0.0)) for key, value in a.items()}

    return replace(
        one,
        flops_per_s=most(one.flops_per_s, other.flops_per_s),
        bytes_per_s=most(one.bytes_per_s, other.bytes_per_s),
        contention=min(one.contention, other.contention, key=lambda seen: seen.slowdown),
    )


def measure_machine(machine: dict[str, Any], cpus: list[int], report: Callable[[str], None]) -> Peaks:
    key = digest(machine)
    before = probe_contention(len(cpus), key)
    flops = {}
    for precision in ("fp32", "bf16"):
        report(f"measuring matrix products in {precision} on {len(cpus)} threads")
        flops[precision] = gemm_peak(precision, len(cpus))
    every = levels(cpus)
    bandwidth = {}
    for level in every:
        report(f"measuring the bandwidth of {level.name} on {len(cpus)} threads")
        best = stream_triad(cpus, level.test_bytes_per_thread, _REPEATS, _TRIAD_NS)  # STREAM's triad, its best repeat
        bandwidth[level.name] = best.best_bytes_per_s
    after = probe_contention(len(cpus), key)
    worse = max(before, after, key=lambda seen: seen.slowdown)
    when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    capacities = {level.name: level.capacity_bytes for level in every}
    return Peaks(machine, len(cpus), flops, bandwidth, capacities, worse, when)


def gemm_peak(precision: str, threads: int) -> float:
    """Measure FLOP/s of the best of many products of square matrices by torch, on `threads` threads."""
    import torch

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    best = 0.0
    with torch_threads(threads):
        for size in SIZES:
            one_s = _product_s(size, dtype)
            best = max(best, 2.0 * size**3 / one_s)
            if one_s > _SLOW_S:
                break
    return best


def _product_s(size: int, dtype: Any) -> float:
    """Time the fastest of the products that fit in the budget, seconds."""
    import torch

    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=generator).to(dtype) for _ in range(2))
    out = torch.empty(size, size, dtype=dtype)
    torch.matmul(a, b, out=out)
    best, end = float("inf"), time.monotonic() + GEMM_S
    while True:
        begin = now_ns()
        torch.matmul(a, b, out=out)
        best = min(best, (now_ns() - begin) / 1e9)
        if time.monotonic() >= end:
            return best
