# SPDX-License-Identifier: MIT
"""The reports of mila-iqia/training: one table and three statistics, as its README of November 2019 shows them, and the
score of its last version: passes against targets, stability, mean performance, price."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .._lazy import pandas
from ..results.intervals import mean, weighted_mean
from ._entries import ReportEntry, by_job, by_run, finished
from .targets import JOBS, Target, uncompared

NOT_SCORED = frozenset({"convnet_distributed", "convnet_distributed_fp16", "dcgan_all"})
MOST_FAILURES = 0.01  # of all results: with more the score is zero


@dataclass(frozen=True)
class Score:
    """BF * (2 PM + ST + 5 PG).

    well_functioning (BF): 1 while at most one result in a hundred failed, else 0. minimal_performance (PM) and
    stability (ST): the fractions of jobs whose rate and whose deviation reach their target. mean_performance (PG): the
    geometric mean of rate / target, without `scaling`. Jobs of a suite's file count by their weights.
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
    weights = table.index.map(weights_of(entries)).astype(float)
    perf = {str(job): float(value) for job, value in table["perf"].items() if job != "scaling"}
    own, performs = [weights_of(entries)[job] for job in perf], bool(perf) and min(perf.values()) > 0
    healthy = bool(scored) and failures <= MOST_FAILURES * len(scored)
    return Score(
        failures=failures,
        results=len(scored),
        well_functioning=float(healthy),
        minimal_performance=weighted_mean(table["perf_pass"], weights) if len(table) else 0.0,
        stability=weighted_mean(table["sd%_pass"], weights) if len(table) else 0.0,
        mean_performance=math.exp(weighted_mean(map(math.log, perf.values()), own)) if performs else 0.0,
        price=price,
    )


def weights_of(entries: Iterable[ReportEntry]) -> dict[str, float]:
    """Return the weight of each job."""
    return {entry.job: entry.weight for entry in entries}


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


def statistics(
    table: pandas.DataFrame, jobs: int = len(JOBS), benches: Mapping[str, str] | None = None
) -> list[Statistic]:
    """Return the three lines below the table. Rows with too few runs do not count.

    Args:
        benches: job of each row, where several rows are variants of one.
    """
    kept = table[table["sd"].notna()]
    spread = 100 * float(kept["sd%"].quantile(0.80)) if len(kept) else math.nan
    measured = len({(benches or {}).get(str(row), str(row)) for row in kept.index})
    found = [
        Statistic(
            "Bench Passes",
            None,
            "",
            measured == jobs,
            f"{measured} of {jobs} jobs were measured in enough runs; --jobs N requires another number",
        ),
        Statistic("Deviation Quantile (80%)", spread, "%", spread < 5, "four of five jobs vary less; below 5 % passes"),
    ]
    diff = kept["diff"].dropna()
    if len(diff):
        value = float(diff.mean())
        text = f"mean of diff, a fraction: {value:+.2%} of the target's rates"
        found.append(Statistic("Performance", value, "", value >= 0, text))
    return found
