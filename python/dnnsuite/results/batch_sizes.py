# SPDX-License-Identifier: MIT
"""Throughput over batch sizes, with the knee: the size from which larger batches bring little."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from .._lazy import pandas as pd
from .._shown import markdown_rows
from .._shown import ratio as ratio_text
from ..errors import InvalidArgument
from . import pool
from .intervals import Interval, mean
from .summary import BASELINE, SPEEDUP, of_sessions, ratio_of, runs_of, summarize, unlike
from .table import SEPARATOR, complete

GAIN = 0.05  # of the rate, for twice the batch: less than that is little

_CURVE = ("job", "device", "mode", "precision", "B")


def by_batch_size(table: pd.DataFrame, allow_unlike: bool = False) -> pd.DataFrame:
    """Return a row for each job, device, mode, precision, B and batch size, with batch sizes in increasing order.

    The columns are those, status, rate, rate_low, rate_high, unit, ms_per_step, peak_memory_bytes, gain_pct (increase
    of the rate per doubling of the batch, over the previous size), knee, runs, failed and message. A size that failed
    has no rate, and its status is the kind of failure. A size that was measured on a busy machine has no rate either,
    and its status is `inconclusive`.

    Args:
        table: table from :func:`load`.
        allow_unlike: pool runs of unlike machines or versions; `attrs["notes"]` says which.

    Raises:
        UnlikeRuns: the runs of one size must not be pooled, and that is not allowed.
    """
    table = complete(table)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for key, curve in table.groupby(list(_CURVE), sort=True):
        of_curve = []
        for size, runs in curve.groupby("batch_size", sort=True):
            summary = summarize(runs, allow_unlike)
            notes += summary.attrs["notes"]
            of_curve.append({**dict(zip(_CURVE, key, strict=True)), "batch_size": size, **_row(runs, summary)})
        _add_gains(of_curve)
        rows += of_curve
    made = pd.DataFrame(rows)
    made.attrs = {"problems": table.attrs.get("problems", []), "notes": list(dict.fromkeys(notes))}
    return made


def _row(runs: pd.DataFrame, summary: pd.DataFrame) -> dict[str, Any]:
    found = summary.iloc[0]
    good = runs["status"] == "ok"
    failed = runs[~good]
    unknown = next((each for each in found["state"].split(SEPARATOR) if each.startswith("inconclusive")), "")
    numbers = {name: math.nan if unknown else found[name] for name in ("rate", "rate_low", "rate_high")}
    return {
        "status": "inconclusive" if unknown else "ok" if found["runs"] else str(found["failure"]), **numbers,
        "unit": found["unit"], "ms_per_step": 1e3 * float(runs.loc[runs["metric"] == "time/step",
        "value"].mean()), "peak_memory_bytes": float(runs.loc[runs["metric"] == "memory/peak",
        "value"].max()), "gain_pct": math.nan, "knee": False, "runs": int(found["runs"]),
        "failed": int(found["failed"]),
        "message": str(failed["message"].iloc[-1]) if len(failed) else unknown.partition(": ")[2],
    }  # fmt: skip


def _add_gains(rows: Sequence[dict[str, Any]]) -> None:
    measured = [row for row in rows if row["rate"] > 0]
    for before, row in pairwise(measured):
        doublings = math.log2(row["batch_size"] / before["batch_size"])
        row["gain_pct"] = 100 * (float((row["rate"] / before["rate"]) ** (1 / doublings)) - 1)
    at = knee([row["batch_size"] for row in measured], [row["rate"] for row in measured])
    for row in measured:
        row["knee"] = row["batch_size"] == at


def knee(sizes: Sequence[int], rates: Sequence[float]) -> int | None:
    """Find the knee: the smallest batch size beyond which doubling the batch never adds the fraction `GAIN` to the
    rate.

    Args:
        sizes: batch sizes in increasing order.
        rates: rate of each size, items per second.

    Returns:
        The size; None if even the largest size still gains that much, or if there are fewer than two sizes.

    >>> from dnnsuite import results
    >>> results.knee([1, 2, 4, 8, 16], [100, 190, 350, 400, 405])
    8
    """
    points = list(zip(sizes, rates, strict=True))
    for i, (size, rate) in enumerate(points[:-1]):
        gains = [(larger / rate) ** (1 / math.log2(more / size)) - 1 for more, larger in points[i + 1 :]]
        if max(gains) < GAIN:
            return size
    return None


PER_CPU_SECOND = "throughput/CPU second"
_RATIOS = ("over_serial", "over_concurrent")
GAINS = (
    "job", "precision", "B", *(f"{name}{end}" for name in _RATIOS for end in ("", "_low", "_high")), "runs",
)  # fmt: skip


def gains(table: pd.DataFrame, metric: str = "throughput", allow_unlike: bool = False) -> pd.DataFrame:
    """Divide the rate of the best array by that of one plain model alone, and of the best concurrent processes.

    There is a row for each job and precision, with the columns `GAINS`. The best array, and the best number of
    processes, is that with the highest mean rate. Ratios come from runs that alternated if there are any, otherwise
    from geometric means over repeats, and have 95 % intervals. Values that were not measured are NaN.

    Args:
        table: runs, from :func:`dnnsuite.results.load`.
        metric: rates to divide; `PER_CPU_SECOND` are rates that change little on a busy machine.
        allow_unlike: pool runs of different machines or jobs.

    Raises:
        UnlikeRuns: the runs must not be pooled; see `summarize`.
    """
    table = complete(table)
    paired = table[(table["metric"] == SPEEDUP) & table["replica"].isna()] if metric == "throughput" else table[:0]
    whole = table[table["replica"].isna() & (table["metric"] == metric)].assign(metric="throughput")
    notes = unlike(whole, allow_unlike)
    rows = []
    for (job, precision), cells in whole.groupby(["job", "precision"]):
        # One plain model alone in single precision is what everything is divided by.
        alone = whole[(whole["job"] == job) & (whole["precision"] == BASELINE[1])]
        B, best = _best(cells, "hfta")
        if B is None:
            continue
        row: dict[str, Any] = {"job": job, "precision": precision, "B": B}
        other_B, others = _best(cells, "concurrent")
        mine, theirs = (
            of_sessions(
                paired[
                    (paired["job"] == job) & (paired["precision"] == precision)
                    & (paired["mode"] == mode) & (paired["B"] == number)
                ]
            )
            for mode, number in (("hfta", B), ("concurrent", other_B))
        )  # fmt: skip
        ratios = (
            ratio_of(best, _cell(alone, "serial", 1)) if math.isnan(mine.mean) else mine,
            ratio_of(best, others) if math.isnan(mine.mean + theirs.mean) else _divided(mine, theirs),
        )
        for name, ratio in zip(_RATIOS, ratios, strict=True):
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), ratio, strict=True))
        rows.append({**row, "runs": len(best)})
    made = pd.DataFrame(rows, columns=list(GAINS))
    made.attrs = {**table.attrs, "notes": [*table.attrs.get("notes", []), *notes]}
    return made


def _divided(one: Interval, other: Interval) -> Interval:
    """Return the ratio of two speedups over the same baseline."""
    value = one.mean / other.mean
    half = math.hypot(math.log(one.high / one.low), math.log(other.high / other.low)) / 2
    return Interval(value, value * math.exp(-half), value * math.exp(half))


def _best(cells: pd.DataFrame, mode: str) -> tuple[int | None, pd.DataFrame]:
    """Return the B with the largest mean rate, and its runs."""
    runs = {int(B): _cell(cells, mode, int(B)) for B in cells.loc[cells["mode"] == mode, "B"].unique()}
    rates = {B: mean(each["value"]) for B, each in runs.items() if len(each)}
    B = max(rates, key=lambda B: rates[B]) if rates else None
    return B, _cell(cells, mode, 0) if B is None else runs[B]


def _cell(cells: pd.DataFrame, mode: str, B: int) -> pd.DataFrame:
    """Measured runs of one point."""
    return runs_of(cells[(cells["mode"] == mode) & (cells["B"] == B)])


def gains_markdown(found: pd.DataFrame) -> str:
    """Render the result of :func:`gains` as a Markdown table of ratios with their intervals."""
    heads = ["workload", "best B", "over serial", "over concurrent"]
    lines = []
    for row in found.to_dict("records"):
        name = str(row["job"]) if row["precision"] == BASELINE[1] else f"{row['job']}, {row['precision']}"
        lines.append([name, str(row["B"]), *(_shown(row, of) for of in _RATIOS)])
    return "\n".join([*markdown_rows([heads]), "|---" * len(heads) + "|", *markdown_rows(lines)]) + "\n"


def _shown(row: Mapping[Any, Any], name: str) -> str:
    return ratio_text(*(float(row[f"{name}{end}"]) for end in ("", "_low", "_high")))


_SCALED = ("device", "precision", "B", "batch_per_process")
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
    whole = pool.measured(complete(table))
    whole = whole[(whole["kind"] == "training") & (whole["processes"] > 0)]
    whole = whole.assign(batch_per_process=whole["batch_size"] // whole["processes"].clip(lower=1))
    together = whole.assign(job="training runs")  # a configuration of one size is on a line with others
    found = pool.reasons(together, ("job", *_SCALED), _GROWS)
    if not allow_unlike:
        pool.refuse(found)
    rows: list[dict[str, Any]] = []
    for key, curve in whole.groupby(list(_SCALED), sort=True):
        points = []
        for (size, job), runs in curve.groupby(["processes", "job"], sort=True):
            mean_rate = summarize(runs, allow_unlike=True).iloc[0]  # what differs was looked at for the whole curve
            own = {name: mean_rate[name] for name in ("rate", "rate_low", "rate_high", "unit", "runs")}
            points.append({**dict(zip(_SCALED, key, strict=True)), "processes": size, "job": job, **own})
        if len({point["processes"] for point in points}) > 1:
            rows += _with_efficiency(points)
    if not rows:
        raise InvalidArgument(_nothing(whole))
    made = pd.DataFrame(rows)
    notes = [f"drawn together although they differ: {reason}" for reason in found]
    made.attrs = {"problems": table.attrs.get("problems", []), "notes": [*table.attrs.get("notes", []), *notes]}
    return made


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
