# SPDX-License-Identifier: MIT
"""Advice when memory runs out: the holders of the device's memory, and the batch size that would fit."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]

from .. import host
from .._shown import size

_MOST = 3
_LEAST_BYTES = 64 << 20  # below, nobody's memory is worth a word
_SPARE = 0.95  # of the memory that is free, what a run may plan with: allocators round up


class Holder(NamedTuple):
    """A process that holds memory of a device."""

    pid: int
    name: str
    bytes: int


def fitting_batch_size(peaks: Mapping[int, int], room_bytes: int, failed: int) -> int | None:
    """Return the largest batch size below `failed` whose memory fits into `room_bytes`; None where none that fits is
    known.

    Args:
        peaks: peak memory in bytes of batch sizes that ran. Memory is taken to grow by a line through the two largest;
            of a single one in proportion, which rather names too small a size.
    """
    sizes = sorted(peaks)
    if not sizes:
        return None
    last = sizes[-1]
    first = sizes[-2] if len(sizes) > 1 else 0
    each = (peaks[last] - (peaks[first] if first else 0)) / (last - first)
    fixed = peaks[last] - each * last
    fits = int((room_bytes * _SPARE - fixed) / each) if each > 0 else failed - 1
    return max(last, min(fits, failed - 1))


def hint(results: Sequence[Mapping[str, Any]], device: str) -> list[str]:
    """Write sentences about batch sizes that ran out of memory; none where all fitted.

    Args:
        results: results from :func:`dnnsuite.profiling.sizes.profiles`.
        device: `cpu` or `cuda`.
    """
    failed = [result["batch_size"] for result in results if result["failure"] == "oom"]
    if not failed:
        return []
    key = "peak_cuda_bytes" if device == "cuda" else "peak_rss_bytes"
    ran = [result for result in results if result["status"] == "ok"]
    peaks = {result["batch_size"]: result["process"][key] for result in ran if key in result["process"]}
    room, held = _room_bytes(device), holders(device)
    said = [f"memory: {size(room)} are free on this {_WORDS[device]}"] if room is not None else []
    others = ", ".join(f"{each.name} (process {each.pid}): {size(each.bytes)}" for each in held)
    said.append(
        f"memory: held by {others}" if held else f"memory: no other process holds much of the {_WORDS[device]}'s"
    )
    fits = None if room is None else fitting_batch_size(peaks, room, min(failed))
    if fits is not None:
        said.append(f"memory: batch size {fits} would fit by the sizes that did; try --batch-sizes {fits}")
    elif not peaks:
        smaller = max(1, min(failed) // 2)
        said.append(f"memory: no batch size has run yet, so it is unknown what fits; try --batch-sizes {smaller}")
    return said


_WORDS = {"cpu": "machine", "cuda": "GPU"}


def holders(device: str) -> list[Holder]:
    """List the processes that hold most of the device's memory, without this one; empty if unknown."""
    found = _of_gpu() if device == "cuda" else _of_machine()
    others = [each for each in found if each.pid != os.getpid() and each.bytes >= _LEAST_BYTES]
    return sorted(others, key=lambda each: -each.bytes)[:_MOST]


def _of_machine() -> list[Holder]:
    running = (each.info for each in psutil.process_iter(["pid", "name", "memory_info"]))
    return [Holder(info["pid"], info["name"], info["memory_info"].rss) for info in running if info["memory_info"]]


def _of_gpu() -> list[Holder]:
    rows = (line.split(", ") for line in _asked("--query-compute-apps=pid,process_name,used_memory"))
    return [
        Holder(int(row[0]), Path(row[1]).name, int(row[2]) << 20)
        for row in rows
        if len(row) == 3 and row[0].isdigit() and row[2].isdigit()
    ]


def _room_bytes(device: str) -> int | None:
    if device != "cuda":
        return host.available_memory_bytes()
    free = [int(line) << 20 for line in _asked("--query-gpu=memory.free") if line.isdigit()]
    return free[0] if free else None


def _asked(query: str) -> list[str]:
    """Lines of nvidia-smi on the GPU that this process computes on; none where it is missing or says nothing."""
    found = shutil.which("nvidia-smi")
    if found is None:
        return []
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    which = [f"--id={first}"] if first.isdigit() or first.startswith("GPU-") else []
    command = [found, query, "--format=csv,noheader,nounits", *which]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
