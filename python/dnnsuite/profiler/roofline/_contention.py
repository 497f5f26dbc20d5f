# SPDX-License-Identifier: MIT
"""Contention for the CPUs, measured by timing fixed arithmetic on all of them at once."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..._C import spin
from ..._files import cache_folder, read_json, write_json
from ...errors import Error, InvalidArgument

_ITERATIONS = 2_000_000  # some milliseconds
_ROUNDS = 3
_BUSY = 1.10  # slower than alone by more: a measurement says as much about the neighbours


@dataclass(frozen=True)
class Contention:
    """Slowdown of arithmetic now over arithmetic alone.

    `slowdown` is wall time over the least CPU time ever measured here for the same work and threads: 1 without
    contention. `waiting_pct` is the part of the wall time in which the threads were runnable and had no CPU.
    """

    slowdown: float
    waiting_pct: float
    threads: int

    @property
    def busy(self) -> bool:
        """True if something else used the CPUs."""
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
    """Time the arithmetic on `threads` threads at once; the least is kept in the cache.

    Args:
        threads: number of threads, that of the work to measure.
        key: the machine, as in `Peaks`: values of another one do not apply.

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
    known = _known(path)
    before = known.get(key)
    least = min(before, now_ns) if isinstance(before, int) and before > 0 else now_ns
    if least != before:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {**known, key: least})
        except (Error, OSError):
            return least
    return least


def _known(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except Error:
        return {}
    return found if isinstance(found, dict) else {}
