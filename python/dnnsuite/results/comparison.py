# SPDX-License-Identifier: MIT
"""Comparison of two sets of runs: each point is faster, slower, same or inconclusive, or there is a reason why it must
not be compared."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from .._lazy import pandas as pd
from ..errors import InvalidArgument, did_you_mean, some_of
from . import pool
from .intervals import AFTER, HIDDEN, drift_of, mean, one_after_the_other, weighted_mean
from .table import SEPARATOR, complete

if TYPE_CHECKING:
    from ..timing import Comparison

VERDICTS = ("faster", "slower", "same", "inconclusive", "unlike", "failed", "missing")
METHODS = ("auto", "paired", "unpaired")
# What differs when one of these is what is compared.
ACROSS = {
    "machine": ("processor", "GPUs", "threads", "device", "copies", "isolation"),
    "software": ("torch", "job version"),
}
_SLOW_UNITS = ("s", "ms", "us", "µs", "ns", "s/step", "ms/step")  # of which less is faster
_POWER = 1.96 / (1.96 + 0.84)  # half of an interval over the change that it excludes in four of five attempts
_MANY = 100_000  # more runs than anybody makes: "more" stands for it


@dataclass(frozen=True)
class Compared:
    """The verdict on one point: the baseline against a candidate.

    Attributes:
        point: the job, with variant, mode, precision and B if points differ in them.
        verdict: one of `VERDICTS`. `unlike` means measured under other conditions, `failed` that the candidate failed,
            and `missing` that there is no run, or that the baseline failed.
        ratio: speed of the candidate divided by that of the baseline, with its 95 % interval `low` to `high`; above 1
            is faster.
        baseline, candidate: geometric means of the runs, in `unit`; if runs are independent, `ratio` is their ratio.
        runs: numbers of runs of the baseline and of the candidate that count.
        more_runs: number of further runs of each side that would settle an inconclusive verdict; None if unknown.
        method: `paired` if the runs of both sides alternated on one machine, else `unpaired`.
        reasons: why there is no verdict on speed, or how it was reached.
        failed: numbers of runs of each side that do not count, because they or another copy failed.
        remarks: notes on runs that failed or were disturbed.
        weight: weight in the mean over all points, from the file of the suite.
    """

    point: str
    verdict: str
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    baseline: float = math.nan
    candidate: float = math.nan
    unit: str = ""
    runs: tuple[int, int] = (0, 0)
    more_runs: int | None = None
    method: str = ""
    reasons: tuple[str, ...] = ()
    failed: tuple[int, int] = (0, 0)
    remarks: tuple[str, ...] = ()
    weight: float = 1.0

    @property
    def change_pct(self) -> float:
        """Change of the speed in percent; negative is slower."""
        return 100 * (self.ratio - 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; NaN becomes None."""
        plain = {**asdict(self), "change_pct": self.change_pct}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in plain.items()
        }


def across(names: Sequence[str]) -> list[str]:
    """Return the conditions that may differ, from their names and from those in `ACROSS`.

    Raises:
        InvalidArgument: an unknown name.
    """
    found: list[str] = []
    for name in names:
        known = [*ACROSS, *pool.CONDITIONS]
        if name not in known:
            near = did_you_mean(name, known)
            raise InvalidArgument(f"--across {name}: no such condition{near}; available: {some_of(known)}")
        found += ACROSS.get(name, (name,))
    return found


def compare(
    baseline: pd.DataFrame,
    candidate: pd.DataFrame,
    *,
    threshold: float = 0.01,
    metric: str = "throughput",
    method: str = "auto",
    ignoring: Sequence[str] = (),
) -> list[Compared]:
    """Compare the points of two tables from :func:`dnnsuite.results.load`.

    The speed of a run is its rate, or the inverse of a metric in seconds; copies that share the machine are one run.
    Logarithms of speeds are compared by Student's t-test: paired if the runs alternated on one machine, otherwise
    Welch's.

    Args:
        baseline: table of the runs to compare with.
        candidate: table of the runs to judge.
        threshold: smallest change that counts, as a fraction; smaller changes are `same`.
        metric: metric of whole runs, for example `throughput`.
        method: `auto`, `paired` or `unpaired`.
        ignoring: conditions that may differ, from :func:`across`.

    Returns:
        A verdict for each point.

    Raises:
        InvalidArgument: the threshold or method is invalid, or no run of either table has the metric.
    """
    if not 0 < threshold < 1:
        raise InvalidArgument(f"--threshold {threshold:g}: must be more than 0 and less than 1, e.g. 0.01")
    if method not in METHODS:
        raise InvalidArgument(f"--method {method}: accepted: {', '.join(METHODS)}{did_you_mean(method, METHODS)}")
    sides = [_points(complete(each), metric) for each in (baseline, candidate)]
    for side, table, name in zip(sides, (baseline, candidate), ("baseline", "candidate"), strict=True):
        if not side:
            has = sorted(set(table.loc[table["replica"].isna(), "metric"]))
            raise InvalidArgument(
                f"no run of the {name} has {metric!r}{did_you_mean(metric, has)}; it has {', '.join(has)}"
            )
    nothing = pd.DataFrame()
    return [
        _compared(point, sides[0].get(point, nothing), sides[1].get(point, nothing), threshold, method, ignoring)
        for point in dict.fromkeys([*sides[0], *sides[1]])
    ]


def overall(points: Sequence[Compared]) -> tuple[int, float, float, float]:
    """Return (points, ratio, low, high): the geometric mean of their ratios by their weights, with its 95 % interval.

    Points without a ratio, as those that must not be compared, do not count. The interval is that of these points,
    whose errors are independent; NaN where a point has none.
    """
    kept = [point for point in points if point.ratio > 0]
    if not kept:
        return 0, math.nan, math.nan, math.nan
    weights = [point.weight for point in kept]
    centre = weighted_mean((math.log(point.ratio) for point in kept), weights)
    halves = [math.log(point.high / point.low) / 2 if point.low > 0 else math.nan for point in kept]
    half = math.hypot(*map(operator.mul, halves, weights)) / math.fsum(weights)
    return len(kept), math.exp(centre), math.exp(centre - half), math.exp(centre + half)


def _points(table: pd.DataFrame, metric: str) -> dict[str, pd.DataFrame]:
    """Whole runs by point, those that failed among them."""
    whole = table[(table["metric"] == metric) & table["replica"].isna()]
    if metric != "throughput":  # a failed run has no other metric than this one
        failed = table[(table["status"] != "ok") & table["replica"].isna()]
        whole = whole if failed.empty or whole.empty else pd.concat([whole, failed], ignore_index=True)
    return {_name(key, whole): runs for key, runs in whole.groupby(list(pool.CELL), sort=True)}


def _name(key: tuple[Any, ...], table: pd.DataFrame) -> str:
    """Name a point: the job, and the parts of its cell that are not the same in every suite."""
    job, variant, mode, precision, B = key
    said = f"{job} [{variant}]" if variant else str(job)
    same = set(table.loc[table["job"] == job, "kind"]) <= {"suite", "mila", "milabench"}
    return said if same else f"{said} {mode} {precision} B={B}"


def _compared(
    point: str, baseline: pd.DataFrame, candidate: pd.DataFrame, threshold: float, method: str, ignoring: Sequence[str]
) -> Compared:
    if baseline.empty or candidate.empty:
        return Compared(point, "missing", reasons=(f"only in the {'candidate' if baseline.empty else 'baseline'}",))
    sides = [side.assign(run_key=pool.run_keys(side)) for side in (baseline, candidate)]
    copies = [int(side["copies"].max()) for side in sides]
    whole = copies[0] != copies[1]  # the rate of a copy would say nothing of the machine
    good = [_measured(side, count if whole else 1) for side, count in zip(sides, copies, strict=True)]
    counts = (len(good[0]), len(good[1]))
    every = [side["run_key"].nunique() for side in sides]
    failed = (every[0] - counts[0], every[1] - counts[1])
    if good[1].empty:
        found = Compared(point, "failed", reasons=_failures(candidate))
    elif good[0].empty:
        found = Compared(point, "missing", reasons=("the baseline failed", *_failures(baseline)))
    elif odd := _unlike(baseline, candidate, ignoring):
        found = Compared(point, "unlike", reasons=tuple(odd))
    else:
        found = _judged(point, good, threshold, method, candidate["unit"].iloc[-1], counts)
    told = [f"rates of the whole machine: {copies[0]} and {copies[1]} copies"] if whole and found.ratio > 0 else []
    weights = [float(side["weight"].iloc[-1]) for side in sides]
    if weights[0] != weights[1]:
        told.append(f"it weighs {weights[0]:g} in the baseline, which counts, and {weights[1]:g} in the candidate")
    remarks = (*told, *_remarks(sides, good))
    return replace(found, runs=counts, failed=failed, remarks=remarks, weight=weights[0])


def _measured(side: pd.DataFrame, copies: int) -> pd.DataFrame:
    """One row for each run, oldest first: the mean of its copies, times `copies`.

    A run of which a copy failed is left out: the others had more of the machine.
    """
    ok = (side["status"] == "ok") & (side["value"] > 0) & (side["value"] < math.inf)
    whole = side[pool.whole_runs(side, ok)]
    if whole.empty:
        return whole
    made = whole.groupby("run_key", sort=False)
    means = made["value"].mean() * copies
    return (
        made[["started", "hostname", "low", "high"]]
        .min()
        .assign(value=means)
        .sort_values("started", kind="stable")
        .reset_index()
    )


def _remarks(sides: Sequence[pd.DataFrame], good: Sequence[pd.DataFrame]) -> list[str]:
    """Sentences on runs that failed, and on those that something disturbed."""
    found = []
    for name, side, measured in zip(("baseline", "candidate"), sides, good, strict=True):
        every = side["run_key"].nunique()
        if 0 < len(measured) < every:
            why = "; ".join(_failures(side))
            found.append(f"{every - len(measured)} of {every} runs of the {name} do not count: {why}")
        kept = side[side["run_key"].isin(measured["run_key"])] if len(measured) else side[:0]
        flagged = kept[kept["disturbances"] != ""]
        if len(flagged):
            flags = sorted({flag for text in flagged["disturbances"] for flag in text.split(SEPARATOR)})
            count = flagged["run_key"].nunique()
            found.append(f"{', '.join(flags)} in {count} of {len(measured)} runs of the {name}")
    return found


def _failures(side: pd.DataFrame) -> tuple[str, ...]:
    said = (
        f"{row['failure'] or 'failed'}: {row['message']}" for row in side.to_dict("records") if row["status"] != "ok"
    )
    nothing = "a copy has no record" if (side["value"] > 0).all() else "no rate was measured"
    return tuple(dict.fromkeys(said))[:3] or (nothing,)


def _unlike(baseline: pd.DataFrame, candidate: pd.DataFrame, ignoring: Sequence[str]) -> list[str]:
    """Conditions that differ within a side, or between the two, as sentences."""
    throughput = [side.assign(metric="throughput") for side in (baseline, candidate)]
    found, known = [], set()
    for name, side in zip(("baseline", "candidate"), throughput, strict=True):
        for reason in pool.reasons(side, ("job",)):
            known.add(reason.condition)
            found.append(f"{reason.condition} differs within the {name}: {' and '.join(sorted(reason.values))}")
    for reason in pool.reasons(pd.concat(throughput, ignore_index=True), ("job",), ignoring):
        if reason.condition not in known:
            alike = [pool.conditions(next(pool.rows_of(pool.measured(side)))) for side in throughput]
            sides = [each[reason.condition] for each in alike]
            found.append(f"{reason.condition} is {sides[0]} in the baseline and {sides[1]} in the candidate")
    return found


def _judged(
    point: str, good: Sequence[pd.DataFrame], threshold: float, method: str, unit: str, counts: tuple[int, int]
) -> Compared:
    """Return the verdict on runs that may be compared."""
    from .. import timing

    slow = unit in _SLOW_UNITS
    seconds = [(side["value"] if slow else 1 / side["value"]).tolist() for side in good]
    means = [math.exp(mean(map(math.log, side["value"]))) for side in good]
    if method == "paired" and counts[0] != counts[1]:
        raise InvalidArgument(
            f"--method paired: {point} has {counts[0]} runs in the baseline and {counts[1]} in the candidate"
        )
    in_turns = _in_turns(*good)
    paired = method == "paired" or (method == "auto" and in_turns)
    told: tuple[str, ...] = () if paired or not one_after_the_other(*good) else (AFTER,)
    with_drift = seconds[1]
    if paired and in_turns:
        drift = drift_of(good, seconds)
        seconds[1] = [value / math.exp(step) for value, step in zip(seconds[1], drift.steps, strict=True)]
        told = drift.told
    ratio = math.exp(mean(map(math.log, seconds[0])) - mean(map(math.log, seconds[1])))
    common: dict[str, Any] = {
        "baseline": means[0],
        "candidate": means[1],
        "unit": unit,
        "runs": counts,
        "method": "paired" if paired else "unpaired",
    }
    if min(counts) < 2:
        why = "one run per side says nothing about variation"
        return Compared(point, "inconclusive", ratio, more_runs=2, reasons=(why, *told), **common)
    found = timing.compare(*seconds, paired=paired, threshold=threshold, independent=True)
    if found.verdict in ("faster", "slower") and seconds[1] != with_drift:
        # What is no line, as a step of the clock, is not taken out by one: it would be put into every difference.
        as_measured = timing.compare(seconds[0], with_drift, paired=True, threshold=threshold, independent=True)
        if as_measured.verdict != found.verdict:
            return Compared(
                point, "inconclusive", found.ratio, found.low, found.high, reasons=(*told, HIDDEN), **common
            )
    more = _more_runs(found, threshold, min(counts)) if found.verdict == "inconclusive" else None
    return Compared(
        point, found.verdict, found.ratio, found.low, found.high,
        more_runs=more if more is not None and 0 < more < _MANY else None,
        reasons=(*((found.reason.partition("; about ")[0],) if found.reason else ()), *told), **common,
    )  # fmt: skip


def _more_runs(found: Comparison, threshold: float, runs: int) -> int:
    """Runs of each side that are missing for a verdict, if the change is what it seems to be.

    Where it seems to be larger than the threshold, until the interval excludes no change in four of five attempts; else
    until it fits within the threshold. The width of an interval falls with the root of the runs.
    """
    change, least = abs(math.log(found.ratio)), math.log1p(threshold)
    half = math.log(found.high / found.low) / 2
    wanted = max(least, _POWER * change) if change > least else least
    if not half > wanted:
        return found.more_blocks
    return max(math.ceil(runs * (half / wanted) ** 2) - runs, min(found.more_blocks, runs))


def _in_turns(baseline: pd.DataFrame, candidate: pd.DataFrame) -> bool:
    """True if the i-th runs of both belong together: made on one machine, before the next of either began."""
    if len(baseline) != len(candidate) or len(baseline) < 2:
        return False
    hosts = {*baseline["hostname"], *candidate["hostname"]}
    if len(hosts) > 1 or "" in hosts or "" in {*baseline["started"], *candidate["started"]}:
        return False
    pairs = [sorted(pair) for pair in zip(baseline["started"], candidate["started"], strict=True)]
    return all(before[1] < after[0] for before, after in itertools.pairwise(pairs))
