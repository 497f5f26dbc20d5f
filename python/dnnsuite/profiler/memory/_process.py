# SPDX-License-Identifier: MIT
"""Memory in use, current and peak: of the GPU's allocator, or of this process."""

from __future__ import annotations

import contextlib
from typing import NamedTuple


class MemoryLevel(NamedTuple):
    """Memory in bytes: on a GPU given out by torch's allocator (`peak`, `current`) and held by it (`cached`).

    On a CPU both are the resident set.
    """

    peak: int
    current: int
    peak_cached: int
    current_cached: int


def begin_peak(device: str) -> None:
    """Start a new peak. On a GPU this resets torch's own peak statistics, too."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats()
        return
    # Not possible in some containers: the peak is then that of the process's whole life.
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def level(device: str) -> MemoryLevel:
    """Measure the memory in use."""
    if device.startswith("cuda"):
        import torch

        return MemoryLevel(
            torch.cuda.max_memory_allocated(),
            torch.cuda.memory_allocated(),
            torch.cuda.max_memory_reserved(),
            torch.cuda.memory_reserved(),
        )
    peak, current = _resident()
    return MemoryLevel(peak, current, peak, current)


def _resident() -> tuple[int, int]:
    found = {"VmHWM": 0, "VmRSS": 0}
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in found:
                found[name] = int(rest.split()[0]) * 1024
    return found["VmHWM"], found["VmRSS"]
