# SPDX-License-Identifier: MIT
"""Metrics of every chip, as CUPTI's library lists them; needs no driver and no GPU."""

from __future__ import annotations

import fnmatch
import functools
from dataclasses import dataclass

from ..._C import CounterHost, counter_chips, cupti_version
from ...errors import Unavailable, did_you_mean
from .library import ready

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
