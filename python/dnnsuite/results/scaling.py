# SPDX-License-Identifier: MIT
"""Weak scaling: total throughput of training runs over the number of processes, each with a batch of the same size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument
from . import pool
from .summary import summarize
from .table import complete

if TYPE_CHECKING:
    import pandas as pd

_CURVE = ("device", "precision", "B", "batch_per_process")
# What differs between the sizes of one curve: the batch grows with the processes, and with it the configuration.
_GROWS = ("job version", "batch size")


def weak_scaling(table: pd.DataFrame, allow_unlike: bool = False) -> pd.DataFrame:
    """Return a row for each device, precision, B, batch per process, number of processes and configuration.

    The columns are device, precision, B, batch_per_process, processes, job, rate (of all processes together), rate_low,
    rate_high, unit, ideal (the rate of one process times their number), efficiency (rate divided by ideal),
    efficiency_low, efficiency_high and runs. Intervals are 95 %. If nothing ran on one process, the ideal is relative
    to the smallest number of processes.

    Args:
        table: table from :func:`load`; runs that are not training runs are left out.
        allow_unlike: put runs of unlike machines, data or versions together; `attrs["notes"]` says which.

    Raises:
        InvalidArgument: there are not two numbers of processes with the same batch per process.
        UnlikeRuns: the runs of a curve must not be pooled, and that is not allowed.
    """
    import pandas as pd

    whole = pool.measured(complete(table))
    whole = whole[(whole["kind"] == "training") & (whole["processes"] > 0)]
    whole = whole.assign(batch_per_process=whole["batch_size"] // whole["processes"].clip(lower=1))
    together = whole.assign(job="training runs")  # a configuration of one size is on a line with others
    found = pool.reasons(together, ("job", *_CURVE), _GROWS)
    if not allow_unlike:
        pool.refuse(found)
    rows: list[dict[str, Any]] = []
    for key, curve in whole.groupby(list(_CURVE), sort=True):
        points = [
            {**dict(zip(_CURVE, key, strict=True)), "processes": size, "job": job, **_rate(runs)}
            for (size, job), runs in curve.groupby(["processes", "job"], sort=True)
        ]
        if len({point["processes"] for point in points}) > 1:
            rows += _with_efficiency(points)
    if not rows:
        raise InvalidArgument(_nothing(whole))
    made = pd.DataFrame(rows)
    notes = [f"drawn together although they differ: {reason}" for reason in found]
    made.attrs = {"problems": table.attrs.get("problems", []), "notes": [*table.attrs.get("notes", []), *notes]}
    return made


def _rate(runs: pd.DataFrame) -> dict[str, Any]:
    """Mean and interval of the runs of one configuration on one number of processes."""
    found = summarize(runs, allow_unlike=True).iloc[0]  # what differs was looked at for the whole curve
    return {name: found[name] for name in ("rate", "rate_low", "rate_high", "unit", "runs")}


def _with_efficiency(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    least = min(point["processes"] for point in points)
    smallest = [point for point in points if point["processes"] == least]
    one = sum(point["rate"] for point in smallest) / len(smallest) / least
    half_of_one = _half(smallest[0]) if len(smallest) == 1 else math.nan
    for point in points:
        ideal = point["processes"] * one
        efficiency = point["rate"] / ideal
        # Of the smallest itself, what it fluctuates by; else of a ratio of two independent rates.
        half = _half(point) if point in smallest else math.hypot(_half(point), half_of_one)
        low, high = (efficiency * math.exp(sign * half) for sign in (-1, 1))
        point |= {"ideal": ideal, "efficiency": efficiency, "efficiency_low": low, "efficiency_high": high}
    return points


def _half(point: dict[str, Any]) -> float:
    """Half the width of the interval of a rate's logarithm; NaN where it is not known."""
    return float((point["rate_high"] - point["rate_low"]) / 2 / point["rate"])


def _nothing(whole: pd.DataFrame) -> str:
    if whole.empty:
        return "nothing to draw: no training run with a rate"
    sizes = whole[["batch_per_process", "processes"]].drop_duplicates().sort_values(["processes"])
    have = ", ".join(f"{row['batch_per_process']} on {row['processes']}" for row in sizes.to_dict("records"))
    return f"weak scaling needs runs of several numbers of processes with one batch per process; these have {have}"
