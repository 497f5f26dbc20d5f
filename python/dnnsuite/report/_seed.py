# SPDX-License-Identifier: MIT
"""The report of mila-iqia/training as its README of November 2019 shows it: one table and three statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..results.intervals import mean
from ._entries import ReportEntry, by_job, by_run, finished
from .targets import Target, uncompared

if TYPE_CHECKING:
    import pandas

JOBS = 19  # of the suite: all must have a row
LEAST_RUNS = 4


@dataclass(frozen=True)
class Statistic:
    """A line of the summary. `value` is in `unit`; None where the line has none."""

    name: str
    value: float | None
    unit: str
    passed: bool
    definition: str


def trimmed_mean(values: Sequence[float]) -> float:
    """Mean without the largest and the smallest value; NaN for fewer than three."""
    if len(values) < 3:
        return math.nan
    return (math.fsum(values) - max(values) - min(values)) / (len(values) - 2)


def seed_table(entries: Sequence[ReportEntry], targets: Mapping[str, Target] | None) -> pandas.DataFrame:
    """One row per job: target, result, sd, sd%, diff, in the seed's units and with its definitions.

    A run's value is the mean over its devices; `result` is the trimmed mean over runs; `sd` their sample standard
    deviation, extremes included; `sd%` = sd / result and `diff` = (result - target) / target are fractions. A job with
    fewer than four runs has NaNs, and one that must not be compared with its target has no `diff`.
    """
    import pandas

    rows = {}
    unlike = uncompared(entries, targets) if targets else {}
    for job, of_job in by_job(finished(entries)).items():
        values = [mean(entry.seed_rate for entry in of_run) for of_run in by_run(of_job).values()]
        enough = len(values) >= LEAST_RUNS
        result = trimmed_mean(values) if enough else math.nan
        sd = float(pandas.Series(values).std()) if enough else math.nan
        bench = of_job[0].bench
        target = targets[bench].rate if targets and bench in targets else math.nan
        diff = math.nan if job in unlike else (result - target) / target
        rows[job] = (target, result, sd, sd / result if result else math.nan, diff)
    table = pandas.DataFrame.from_dict(
        rows, orient="index", columns=["target", "result", "sd", "sd%", "diff"], dtype=float
    )
    table.index.name = "bench"
    return table


def statistics(table: pandas.DataFrame, jobs: int = JOBS, benches: Mapping[str, str] | None = None) -> list[Statistic]:
    """Return the three lines below the table. Rows with too few runs do not count.

    Args:
        benches: job of each row, where several rows are variants of one.
    """
    kept = table[table["sd"].notna()]
    measured = len({(benches or {}).get(str(row), str(row)) for row in kept.index})
    found = [
        Statistic("Bench Passes", None, "", measured == jobs, f"{measured} of {jobs} jobs have a row"),
        _deviation(kept),
    ]
    diff = kept["diff"].dropna()
    if len(diff):
        value = float(diff.mean())
        text = f"mean of diff, a fraction: {value:+.2%} of the target's rates"
        found.append(Statistic("Performance", value, "", value >= 0, text))
    return found


def _deviation(kept: pandas.DataFrame) -> Statistic:
    value = 100 * float(kept["sd%"].quantile(0.80)) if len(kept) else math.nan
    return Statistic("Deviation Quantile (80%)", value, "%", value < 5, "four of five jobs vary less; below 5 % passes")
