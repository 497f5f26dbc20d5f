# SPDX-License-Identifier: MIT
"""The metrics of every chip, as CUPTI's own library lists them: needs no driver and no GPU."""

from __future__ import annotations

import difflib
import fnmatch
import functools
from collections.abc import Iterable
from dataclasses import dataclass

from ..._C import CounterHost, counter_chips, cupti_version
from ...errors import InvalidArgument, Unavailable
from ._library import ready

__all__ = [
    "COLLECTIONS", "Metric", "accepts", "chips", "host", "metrics", "passes", "suggestions", "unit_of", "validate",
    "version",
]  # fmt: skip

COLLECTIONS = ("ranges", "sampling")
TYPES = ("counter", "ratio", "throughput")


@dataclass(frozen=True)
class Metric:
    """A metric without submetric: `unit` is of a counter's value ("" for a pure number), `hardware_unit` where it is
    counted."""

    name: str
    type: str
    unit: str
    hardware_unit: str
    description: str


@functools.cache
def host(chip: str, collection: str = "ranges") -> CounterHost:
    """The chip's metrics in CUPTI.

    Raises:
        Unavailable: there is no CUPTI here, or it cannot count on this chip; the message names the chips there are.
        InvalidArgument: another collection than "ranges" and "sampling".
    """
    ready()
    return CounterHost(chip, collection)


@functools.lru_cache(maxsize=8192)
def accepts(metric: str, chip: str, collection: str = "ranges") -> bool:
    """Whether a full name, with its submetric, can be collected on the chip."""
    return host(chip, collection).accepts(metric)


@functools.lru_cache(maxsize=8192)
def passes(metrics: tuple[str, ...], chip: str, collection: str = "ranges") -> int | None:
    """How often work would have to run to collect full names together; None when they cannot be mixed."""
    config = host(chip, collection).configure(list(metrics))
    return config[0] if config else None


def version() -> int:
    """CUPTI's version, 130001 for CUDA 13.0. Raises Unavailable where there is none."""
    ready()
    return cupti_version()


@functools.cache
def chips(collection: str = "ranges") -> tuple[str, ...]:
    """The chips with counters of this collection, in CUPTI's order. Raises Unavailable without CUPTI."""
    ready()
    return tuple(chip for chip in counter_chips() if _has_counters(chip, collection))


def _has_counters(chip: str, collection: str) -> bool:
    try:
        host(chip, collection)
    except Unavailable:  # CUPTI has heard of it, GV11B say, but cannot count there
        return False
    return True


@functools.cache
def _names(chip: str, collection: str) -> dict[str, str]:
    """Type by name, of all metrics without submetric."""
    known = host(chip, collection)
    return {name: kind for kind in TYPES for name in known.metrics(kind)}


def metrics(chip: str, pattern: str = "*", collection: str = "ranges") -> list[Metric]:
    """The chip's metrics whose name matches a shell pattern (`sm__pipe_*`); without wildcards, contains it."""
    if not any(wild in pattern for wild in "*?["):
        pattern = f"*{pattern}*"
    known = host(chip, collection)
    found = []
    for name in sorted(fnmatch.filter(_names(chip, collection), pattern)):
        about = known.describe(name)
        found.append(
            Metric(
                name,
                about["type"],
                about["unit"],
                about["hardware_unit"],
                " ".join(about["description"].split()),
            )
        )
    return found


def unit_of(metric: str, chip: str, collection: str = "ranges") -> str:
    """The unit of a full metric name's values, as CUPTI has it: "%", "byte/s"; "" for a pure number."""
    unit: str = host(chip, collection).describe(metric)["unit"]
    for long, short in (("percent", "%"), ("nanosecond", "ns"), ("second", "s")):
        unit = unit.replace(long, short)
    return unit


def validate(names: Iterable[str], chip: str, collection: str = "ranges") -> None:
    """Check full names, with their submetrics, one by one: CUPTI refuses a set without saying which one was wrong.

    Raises:
        InvalidArgument: for all that cannot be collected at once, each with the names nearest to it on this chip.
    """
    wrong = [name for name in dict.fromkeys(names) if not accepts(name, chip, collection)]
    if wrong:
        raise InvalidArgument("\n".join(_complaint(name, chip, collection) for name in wrong))


def _complaint(name: str, chip: str, collection: str) -> str:
    near = suggestions(name, chip, collection)
    hint = (
        f"; did you mean {', '.join(near)}?"
        if near
        else f"; `dnnsuite metrics list --chip {chip}` lists them"
    )
    how = "" if collection == "ranges" else " by sampling"
    return f"metric {name!r} cannot be collected{how} on {chip}{hint}"


def suggestions(name: str, chip: str, collection: str = "ranges", count: int = 3) -> list[str]:
    """Full names that this chip has and that are nearest to `name`; the chip's name of the same role comes first."""
    from .roles import same_role

    base, _, submetric = name.partition(".")
    if "Triage" in name:  # these names have dots of their own
        return []
    known = _names(chip, collection)
    if base in known:
        return _with_submetrics(base, submetric, chip, collection, count)
    other = same_role(name, chip, collection)
    near = difflib.get_close_matches(base, known, n=count, cutoff=0.6)
    found = [_with_submetrics(close, submetric, chip, collection, 1)[0] for close in near]
    return list(dict.fromkeys([*([other] if other else []), *found]))[:count]


def _with_submetrics(base: str, submetric: str, chip: str, collection: str, count: int) -> list[str]:
    possible = [part.lstrip(".") for part in host(chip, collection).submetrics(base)]
    if submetric in possible:
        return [f"{base}.{submetric}"]
    usual = ("avg", "sum", "pct", "avg.pct_of_peak_sustained_elapsed", "ratio")
    order = difflib.get_close_matches(submetric, possible, n=count) if submetric else []
    order += [part for part in usual if part in possible]
    return [f"{base}.{part}" for part in dict.fromkeys([*order, *possible])][:count]
