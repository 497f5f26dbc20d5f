# SPDX-License-Identifier: MIT
"""The score of mila-iqia/training's last version: passes against targets, stability, mean performance, price."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._entries import ReportEntry, by_job, finished
from .targets import Target, uncompared

if TYPE_CHECKING:
    import pandas

NOT_SCORED = frozenset({"convnet_distributed", "convnet_distributed_fp16", "dcgan_all"})
MOST_FAILURES = 0.01  # of all results: with more the score is zero


@dataclass(frozen=True)
class Score:
    """BF * (2 PM + ST + 5 PG).

    well_functioning (BF): 1 while at most one result in a hundred failed, else 0. minimal_performance (PM) and
    stability (ST): the fractions of jobs whose rate and whose deviation reach their target. mean_performance (PG): the
    geometric mean of rate / target, without `scaling`.
    """

    failures: int
    results: int
    well_functioning: float
    minimal_performance: float
    stability: float
    mean_performance: float
    price: float | None = None

    @property
    def value(self) -> float:
        """The score."""
        parts = 2 * self.minimal_performance + self.stability + 5 * self.mean_performance
        return self.well_functioning * parts if self.well_functioning else 0.0

    @property
    def price_per_point(self) -> float | None:
        """Price / score (RPP); None without either."""
        return self.price / self.value if self.price and self.value > 0 else None


def score_table(entries: Sequence[ReportEntry], targets: Mapping[str, Target]) -> pandas.DataFrame:
    """One row per job: n, target, perf_tgt, sd%_tgt, mean, sd, perf, perf_pass, sd%, sd%_pass.

    Jobs that must not be compared with their target are left out. Mean and sample standard deviation are over all
    results, runs x devices, in the seed's units.
    """
    import pandas

    rows = {}
    unlike = uncompared(entries, targets)
    for job, of_job in by_job(finished(entries)).items():
        bench = of_job[0].bench
        if bench in NOT_SCORED or job in unlike:
            continue
        rates = pandas.Series([entry.seed_rate for entry in of_job], dtype=float)
        target = targets.get(bench, Target(math.nan, math.nan, math.nan))
        average, sd = float(rates.mean()), float(rates.std())
        perf, spread = average / target.rate, sd / average
        rows[job] = (
            len(rates),
            target.rate,
            target.perf,
            target.sd,
            average,
            sd,
            perf,
            perf >= target.perf,
            spread,
            spread <= target.sd,
        )
    columns = ["n", "target", "perf_tgt", "sd%_tgt", "mean", "sd", "perf", "perf_pass", "sd%", "sd%_pass"]
    table = pandas.DataFrame.from_dict(rows, orient="index", columns=columns)
    table.index.name = "bench"
    return table


def score(entries: Sequence[ReportEntry], targets: Mapping[str, Target], price: float | None = None) -> Score:
    """Return the score of `entries`; jobs without a target do not count, failures of every scored job do."""
    unlike = uncompared(entries, targets)
    scored = [entry for entry in entries if entry.bench not in NOT_SCORED and entry.job not in unlike]
    failures = sum(not entry.ok for entry in scored)
    table = score_table(entries, targets)
    table = table[table["target"].notna()]
    perf = [float(value) for job, value in table["perf"].items() if job != "scaling"]
    healthy = bool(scored) and failures <= MOST_FAILURES * len(scored)
    return Score(
        failures=failures,
        results=len(scored),
        well_functioning=float(healthy),
        minimal_performance=float(table["perf_pass"].mean()) if len(table) else 0.0,
        stability=float(table["sd%_pass"].mean()) if len(table) else 0.0,
        mean_performance=_geometric_mean(perf),
        price=price,
    )


def _geometric_mean(values: Sequence[float]) -> float:
    if not values or min(values) <= 0:
        return 0.0
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def weighted_score(table: pandas.DataFrame, weights: Mapping[str, tuple[float, float]]) -> float:
    """Sum of weight * result / base over the sum of weights, of the jobs in a :func:`seed_table` that have weights."""
    parts = [
        (float(table.loc[job, "result"]), *weights[job])
        for job in table.index[table["result"].notna()]
        if job in weights
    ]
    total = math.fsum(weight for _, weight, _ in parts)
    return math.fsum(result * weight / base for result, weight, base in parts) / total if total else math.nan
