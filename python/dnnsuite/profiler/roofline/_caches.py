# SPDX-License-Identifier: MIT
"""Data caches of a CPU, as the kernel describes them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from ..._C import parse_cpu_list
from ...errors import InvalidArgument

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
    room = memory_bytes if memory_bytes is not None else _memory_bytes() // 4
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


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
