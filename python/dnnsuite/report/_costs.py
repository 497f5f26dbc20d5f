# SPDX-License-Identifier: MIT
"""Cost and energy of a job's items, for a machine with a price or a power."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Error, InvalidArgument
from ..results.intervals import mean
from ..results.monitor import rows_of_monitor
from ._entries import ReportEntry, by_job, by_run, finished, table_of

if TYPE_CHECKING:
    import pandas

DEFINITIONS = {
    "machine_per_s": "items per second of the whole machine: copies x rate of a copy",
    "cost_per_million": "price of an hour / items of the whole machine in an hour, times a million",
    "joules_per_item": "energy of an item: power of the machine (--watts) / machine_per_s; without it, "
    "the power that the GPUs' driver reports in the timed window / rate of a copy, without the rest of the machine",
}
_MILLION = 1e6
_HOUR_S = 3600.0


@dataclass(frozen=True)
class Costs:
    """Prices that the user gave, and the power of the machine.

    Attributes:
        price: price of the machine.
        per_hour: cost of an hour of the machine.
        watts: power of the machine, W.
        currency: currency of both prices, for example EUR.
    """

    price: float | None = None
    per_hour: float | None = None
    watts: float | None = None
    currency: str = ""

    def __post_init__(self) -> None:
        for flag, value in (("price", self.price), ("cost-per-hour", self.per_hour), ("watts", self.watts)):
            if value is not None and not 0 < value < math.inf:
                raise InvalidArgument(f"--{flag} {value:g}: must be a positive number")
        if (self.price or self.per_hour) and not self.currency.isprintable():
            raise InvalidArgument(f"--currency {self.currency!r}: wants a word, for example EUR")


def machine_rate(of_job: Sequence[ReportEntry]) -> float:
    """Items per second of the whole machine: mean over runs of the rate of a copy, times the copies."""
    runs = by_run(finished(of_job)).values()
    return mean(mean(entry.rate for entry in run) * max(entry.copies for entry in run) for run in runs)


def per_million(costs: Costs, rate: float) -> float:
    """Return the price of a million items at this rate of the whole machine; NaN without a price of an hour."""
    return costs.per_hour / (rate * _HOUR_S) * _MILLION if costs.per_hour else math.nan


def cost_table(entries: Sequence[ReportEntry], costs: Costs, watts: Mapping[str, float]) -> pandas.DataFrame | None:
    """One row per measured job: unit, machine_per_s, cost_per_million, joules_per_item; None where nothing is known.

    Args:
        watts: mean power of the GPUs of a copy, by job.
    """
    if not (costs.per_hour or costs.watts or watts):
        return None
    rows = {}
    for job, every in by_job(entries).items():
        if not (of_job := finished(every)):
            continue
        rate, copies = machine_rate(every), max(entry.copies for entry in of_job)
        joules = costs.watts / rate if costs.watts else watts.get(job, math.nan) * copies / rate
        cost = per_million(costs, rate)
        rows[job] = {"unit": of_job[0].unit, "machine_per_s": rate, "cost_per_million": cost, "joules_per_item": joules}
    table = table_of(rows, DEFINITIONS).dropna(axis=1, how="all")
    table.attrs["definitions"] = {name: said for name, said in DEFINITIONS.items() if name in table.columns}
    return table


def gpu_watts(entries: Sequence[ReportEntry]) -> dict[str, float]:
    """Mean power of the GPUs of a copy in its timed window, by job, where it was sampled."""
    found: dict[str, list[float]] = {}
    for entry in finished(entries):
        if entry.conditions.get("device") == "cuda" and (watts := _watts_of(entry.path)) is not None:
            found.setdefault(entry.job, []).append(watts)
    return {job: mean(values) for job, values in found.items()}


def _watts_of(run: Path) -> float | None:
    try:
        rows = rows_of_monitor(run)
        watts = [row.mean for row in rows if row.unit == "W" and row.of.startswith("gpu") and row.metric == "power"]
    except (Error, OSError):
        return None
    return math.fsum(watts) if watts and all(map(math.isfinite, watts)) else None
