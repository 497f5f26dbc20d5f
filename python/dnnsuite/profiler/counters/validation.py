# SPDX-License-Identifier: MIT
"""Checks of metric names against a chip, with the nearest names that it has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ...errors import InvalidArgument
from .catalogue import accepts, host, metric_types
from .roles import same_role


def validate(names: Iterable[str], chip: str, collection: str = "ranges") -> None:
    """Check full names, with their submetrics, one by one: CUPTI refuses a set without naming the wrong one.

    Raises:
        InvalidArgument: names that cannot be collected, all in one message, each with the nearest names of this chip.
    """
    wrong = [name for name in dict.fromkeys(names) if not accepts(name, chip, collection)]
    if wrong:
        raise InvalidArgument("\n".join(_complaint(name, chip, collection) for name in wrong))


def _complaint(name: str, chip: str, collection: str) -> str:
    near = suggestions(name, chip, collection)
    hint = f"; did you mean {', '.join(near)}?" if near else f"; `dnnsuite metrics list --chip {chip}` lists them"
    how = "" if collection == "ranges" else " by sampling"
    return f"metric {name!r} cannot be collected{how} on {chip}{hint}"


def suggestions(name: str, chip: str, collection: str = "ranges", count: int = 3) -> list[str]:
    """List full names of this chip that are nearest to `name`; its name of the same role comes first."""
    base, _, submetric = name.partition(".")
    if "Triage" in name:  # these names have dots of their own
        return []
    known = metric_types(chip, collection)
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
