# SPDX-License-Identifier: MIT
"""CUPTI: a library that works without a driver, the metrics of every chip, and the counters of a GPU.

Not every version works without a driver: 13.0 and 13.1 list and plan. 13.2 ends the process at its first call, 13.3 to
13.5 answer "unknown error" to each. So each is tried in another process first, and the first that answers is opened.
"""

from __future__ import annotations

import ctypes
import fnmatch
import functools
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..._C import CounterDevice, CounterHost, RangeCounters, SampledCounters, counter_chips, cupti_version
from ...errors import Unavailable, did_you_mean
from ...host import register_vendor_folders, vendor_folders

LIBRARY = "libcupti.so.13"
REMEDY = "pip install 'dnnsuite[counters]', whose CUPTI 13.1 needs no driver, or install NVIDIA's driver"
_PROBE = """
import ctypes, sys
version = ctypes.c_uint32()
status = ctypes.CDLL(sys.argv[1]).cuptiGetVersion(ctypes.byref(version))
print(status or version.value)
sys.exit(status != 0)
"""
_PROBE_TIMEOUT_S = 60


@functools.cache
def ready() -> None:
    """Open a CUPTI that answers. Idempotent; call before asking for names and plans.

    Raises:
        Unavailable: there is no driver, and the CUPTI there is answers nothing without one.
    """
    register_vendor_folders()
    if _has_driver():
        return
    found = candidates()
    for path in found:
        if version_of(path) is not None:
            ctypes.CDLL(str(path))  # the copy that the process has is the one that is used
            return
    if found:
        tried = ", ".join(map(str, found))
        raise Unavailable("CUPTI answers nothing here: it needs NVIDIA's driver", tried, REMEDY)


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def candidates() -> list[Path]:
    """Return the copies there are, in the order in which they would be opened; only the process's own if it has one."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = {line.split(maxsplit=5)[5].strip() for line in maps if LIBRARY in line}
    if loaded:
        return [Path(path) for path in sorted(loaded)]
    return [folder / LIBRARY for folder in vendor_folders() if (folder / LIBRARY).is_file()]


def version_of(path: Path | str) -> int | None:
    """Return the version of a copy of CUPTI, asked in another process, which it may end; None when it does not say."""
    command = [sys.executable, "-I", "-S", "-c", _PROBE, str(path)]
    try:
        asked = subprocess.run(command, capture_output=True, timeout=_PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None
    return int(asked.stdout) if asked.returncode == 0 else None


COLLECTIONS = ("ranges", "sampling")
TYPES = ("counter", "ratio", "throughput")


@dataclass(frozen=True)
class Metric:
    """Metric without submetric: `unit` of a counter's value ("" for a pure number), `hardware_unit` where it is
    counted."""

    name: str
    type: str
    unit: str
    hardware_unit: str
    description: str


@functools.cache
def host(chip: str, collection: str = "ranges") -> CounterHost:
    """Open the chip's metrics in CUPTI.

    Raises:
        Unavailable: there is no CUPTI here, or it cannot count on this chip; the message names the chips there are.
        InvalidArgument: another collection than "ranges" and "sampling".
    """
    ready()
    try:
        return CounterHost(chip, collection)
    except Unavailable as unavailable:
        known = counter_chips()
        if chip in known:  # CUPTI knows it, and cannot count there
            raise
        hint = did_you_mean(chip, known)
        raise Unavailable(
            f"chip {chip}{hint} is not known to CUPTI", unavailable.looked_in, unavailable.remedy
        ) from None


@functools.lru_cache(maxsize=8192)
def accepts(metric: str, chip: str, collection: str = "ranges") -> bool:
    """Return True if a full name, with its submetric, can be collected on the chip."""
    return host(chip, collection).accepts(metric)


@functools.lru_cache(maxsize=8192)
def passes(metrics: tuple[str, ...], chip: str, collection: str = "ranges") -> int | None:
    """Return the number of runs of the same work that collect full names together; None if they cannot be mixed."""
    config = host(chip, collection).configure(list(metrics))
    return config[0] if config else None


def version() -> int:
    """Return CUPTI's version, 130001 for CUDA 13.0. Raises Unavailable without CUPTI."""
    ready()
    return cupti_version()


@functools.cache
def chips(collection: str = "ranges") -> tuple[str, ...]:
    """List the chips with counters of this collection, in CUPTI's order. Raises Unavailable without CUPTI."""
    ready()
    return tuple(chip for chip in counter_chips() if _has_counters(chip, collection))


def _has_counters(chip: str, collection: str) -> bool:
    try:
        host(chip, collection)
    except Unavailable:  # CUPTI has heard of it, GV11B say, but cannot count there
        return False
    return True


@functools.cache
def metric_types(chip: str, collection: str = "ranges") -> dict[str, str]:
    """Return the type of each metric of the chip (counter, ratio or throughput) by its name without submetric."""
    known = host(chip, collection)
    return {name: kind for kind in TYPES for name in known.metrics(kind)}


def metrics(chip: str, pattern: str = "*", collection: str = "ranges") -> list[Metric]:
    """List the chip's metrics whose name matches a shell pattern (`sm__pipe_*`) or, without wildcards, contains it."""
    if not any(wild in pattern for wild in "*?["):
        pattern = f"*{pattern}*"
    known = host(chip, collection)
    found = []
    for name in sorted(fnmatch.filter(metric_types(chip, collection), pattern)):
        about = known.describe(name)
        found.append(
            Metric(name, about["type"], about["unit"], about["hardware_unit"], " ".join(about["description"].split()))
        )
    return found


def unit_of(metric: str, chip: str, collection: str = "ranges") -> str:
    """Return the unit of a full metric name's values: "%", "byte/s"; "" for a pure number."""
    return with_suffix(host(chip, collection).describe(metric)["unit"], metric)


def with_suffix(unit: str, metric: str) -> str:
    """Return the unit of a metric's values: CUPTI's, completed from the name, because not all versions give the whole
    unit.

    >>> with_suffix("byte", "dram__bytes_read.sum.per_second"), with_suffix("", "sm__throughput.avg.pct")
    ('byte/s', '%')
    """
    for long, short in (("percent", "%"), ("nanosecond", "ns"), ("second", "s")):
        unit = unit.replace(long, short)
    last = metric.rpartition(".")[2]
    if last.startswith("pct"):
        return "%"
    if last == "per_second" and not unit.endswith("/s"):
        return f"{unit}/s"
    if last.startswith("per_cycle") and "cycle" not in unit.partition("/")[2]:
        return f"{unit}/cycle"
    return unit


class Backend(Protocol):
    """Counter interface of a GPU, as the instruments use it."""

    def device(self, ordinal: int) -> Any:
        """Open the GPU, which has a `chip`. Raises Unavailable without a GPU, or where its counters are unavailable."""

    def ranges(self, device: Any, groups: Sequence[Sequence[str]], kernels: bool, max_ranges: int) -> Any:
        """Open a session that counts: start, mark, step, stop, close, take, passes, steps_left_out."""

    def sampled(self, device: Any, metrics: Sequence[str], **options: Any) -> Any:
        """Open a session that samples: start, stop, close, take."""

    def evaluate(self, chip: str, image: bytes, metrics: Sequence[str], collection: str = "ranges") -> dict[str, Any]:
        """Return names and values [ranges or samples][metrics] of a counter-data image."""


class CuptiBackend:
    """Backend of CUPTI."""

    def device(self, ordinal: int) -> CounterDevice:
        register_vendor_folders()
        return CounterDevice(ordinal)

    def ranges(self, device: Any, groups: Sequence[Sequence[str]], kernels: bool, max_ranges: int) -> RangeCounters:
        return RangeCounters(device, [list(group) for group in groups], kernels, max_ranges)

    def sampled(self, device: Any, metrics: Sequence[str], **options: Any) -> SampledCounters:
        return SampledCounters(device, list(metrics), **options)

    def evaluate(self, chip: str, image: bytes, metrics: Sequence[str], collection: str = "ranges") -> dict[str, Any]:
        return host(chip, collection).evaluate(image, list(metrics))


CUPTI = CuptiBackend()
