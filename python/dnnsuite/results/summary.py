# SPDX-License-Identifier: MIT
"""Throughput by mode, precision and number of models: means, intervals and ratios over comparable runs."""

from __future__ import annotations

import math
from typing import Any

from .._lazy import pandas as pd
from .._runs.record_parts import MODES
from . import pool
from .intervals import Interval, half_width, mean, of_rates
from .table import SEPARATOR, complete

# What throughput is normalised by: one plain model alone on the device, in single precision.
BASELINE = ("serial", "fp32", 1)

# How a mode uses the machine; the others must agree between a mode and its baseline.
_MODES_OWN = ("precision", "copies", "threads", "isolation")
SPEEDUP = "speedup"  # metric of runs that took turns with the baseline
_NOTHING = Interval(math.nan, math.nan, math.nan)


def by_mode(mode: str, precision: str) -> tuple[int, str, bool, str]:
    """Return a sort key: modes in HFTA's order, unknown ones last by name, and fp32 before other precisions."""
    return (MODES.index(mode) if mode in MODES else len(MODES), mode, precision != "fp32", precision)


_COLUMNS = (
    "job", "mode", "precision", "B", "unit", "rate", "rate_low", "rate_high", "normalized", "low", "high",
    "runs", "failed", "failure", "state",
)  # fmt: skip


def summarize(table: pd.DataFrame, allow_unlike: bool = False) -> pd.DataFrame:
    """Summarise throughput by job, mode, precision and B, also normalised by the job's :data:`BASELINE`.

    The columns are job, mode, precision, B, rate, rate_low, rate_high, unit, normalized, low, high, runs, failed,
    failure and state (notes of the runs on the machine).

    Rates are means over the runs; copies of a job that share the machine count as one run, with the mean of their
    rates. Intervals are 95 %: by Student's t on logarithms over several runs, or from within a single run. Normalised
    values come from runs that alternated with the baseline if there are any, otherwise from runs of the same repeat,
    for which the machine was in the same state. A value is NaN if there is no interval, no finished run or no baseline.
    `attrs["titles"]` has a line for the figure of each job: batch, machine, repeats.

    Args:
        table: table from :func:`load`, or one that an earlier version saved.
        allow_unlike: pool runs of unlike machines, settings or versions; `attrs["notes"]` of the result says which.

    Raises:
        UnlikeRuns: the runs of a cell, or a cell and its baseline, must not be pooled, and that is not allowed.
    """
    table = complete(table)
    whole = table[(table["metric"] == "throughput") & table["replica"].isna()]
    notes = unlike(whole, allow_unlike)
    paired = table[(table["metric"] == SPEEDUP) & table["replica"].isna()]
    rows: list[dict[str, Any]] = []
    for job, of_job in whole.groupby("job"):
        cells = {key: runs_of(cell) for key, cell in of_job.groupby(["mode", "precision", "B"])}
        for (mode, precision, B), every in of_job.groupby(["mode", "precision", "B"]):
            runs = cells[mode, precision, B]
            failures = every.loc[every["status"] != "ok", "failure"]
            normalized = of_sessions(paired[paired["run_id"].isin(every["run_id"])])
            if normalized is _NOTHING:
                normalized = ratio_of(runs, cells.get(BASELINE))
            rows.append(
                {
                    "job": job, "mode": mode, "precision": precision, "B": B, "unit": every["unit"].iloc[0],
                    **dict(zip(("rate", "rate_low", "rate_high"), _rate(runs), strict=True)),
                    **dict(zip(("normalized", "low", "high"), normalized, strict=True)), "runs": len(runs),
                    "failed": len(failures), "failure": failures.iloc[-1] if len(failures) else "",
                    "state": SEPARATOR.join(dict.fromkeys(filter(None, every["disturbances"]))),
                }
            )  # fmt: skip
    rows.sort(key=lambda row: (row["job"], *by_mode(row["mode"], row["precision"]), row["B"]))
    made = pd.DataFrame(rows, columns=list(_COLUMNS))  # also if there is no rate among the runs, as of a sweep
    made.attrs = {
        **table.attrs, "notes": [*table.attrs.get("notes", []), *notes],
        "titles": {str(job): _title(str(job), of_job) for job, of_job in whole.groupby("job")},
    }  # fmt: skip
    return made


def _title(job: str, runs: pd.DataFrame) -> str:
    """Return a line about the runs of a job for a figure."""
    first = runs.iloc[0]
    machine = first["device_name"] if first["device"] == "cuda" else f"{first['cpus']} × {first['cpu_model']}"
    repeats = runs["repeat"].nunique()
    batch = ", ".join(map(str, sorted(set(runs["batch_size"]))))
    return f"{job}, batch {batch}, {machine}, {repeats} repeat{'s' * (repeats > 1)}"


def of_sessions(speedups: pd.DataFrame) -> Interval:
    """Return the speedup over the sessions in which it was measured, each with its own interval.

    Several sessions agree within their intervals, or what they differ by counts.
    """
    good = speedups[speedups["status"] == "ok"].dropna(subset=["value"])
    if good.empty:
        return _NOTHING
    logs = [math.log(value) for value in good["value"]]
    halves = [math.log(high / low) / 2 for low, high in zip(good["low"], good["high"], strict=True)]
    within = math.hypot(*halves) / len(logs)
    apart = (max(logs) - min(logs)) / 2 if len(logs) < 3 else half_width(logs)
    half = max(within, apart) if len(logs) < 3 or within == within else apart  # sessions too short for one of their own
    centre = mean(logs)
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def unlike(whole: pd.DataFrame, allowed: bool) -> list[str]:
    """Return a sentence for each reason not to pool; with the reasons not to compare a mode with its baseline.

    Raises:
        UnlikeRuns: there is one, and that is not allowed.
    """
    baseline = (whole["mode"] == BASELINE[0]) & (whole["precision"] == BASELINE[1]) & (whole["B"] == BASELINE[2])
    with_one = whole[whole["job"].isin(whole.loc[baseline, "job"])]
    found = [*pool.reasons(whole), *pool.reasons(with_one, ("job",), _MODES_OWN)]
    if not allowed:
        pool.refuse(found)
    return [f"pooled although they differ: {reason}" for reason in found]


def runs_of(cell: pd.DataFrame) -> pd.DataFrame:
    """Return the measured runs of a cell: columns repeat (of which plan), value, low, high.

    Copies of a job, each in its share, are one run.
    """
    good = pool.measured(cell)
    pairs: list[Any] = list(zip(good["plan_id"], good["repeat"], strict=True))
    good = good.assign(repeat=pairs)
    shared = good["share"] != ""
    alone = good.loc[~shared, ["repeat", "value", "low", "high"]]
    if not shared.any():
        return alone
    copies = good[shared].groupby("repeat", sort=False)
    means = copies["value"].mean().to_frame().assign(low=math.nan, high=math.nan).reset_index()
    if len(copies) == 1 and copies.size().iloc[0] == 1:  # a single figure keeps the interval from within
        means = good.loc[shared, ["repeat", "value", "low", "high"]]
    return means if alone.empty else pd.concat([alone, means], ignore_index=True)


def _rate(runs: pd.DataFrame) -> Interval:
    """Mean and interval of the runs' rates."""
    if len(runs) == 1:  # its own interval, from within
        return Interval(*(float(runs[name].iloc[0]) for name in ("value", "low", "high")))
    return of_rates(runs["value"].tolist())


def ratio_of(runs: pd.DataFrame, baseline: pd.DataFrame | None) -> Interval:
    """Ratio and interval of the runs' rates to the baseline's."""
    if baseline is None:
        return _NOTHING
    if runs is baseline:  # the baseline against its own mean: what it fluctuates by
        rate, low, high = _rate(runs)
        return Interval(1.0, low / rate, high / rate) if rate > 0 else _NOTHING
    moving = [t[t["value"] > 0] for t in (runs, baseline)]
    # The last finished run of a repeat, should one have been done again.
    ours, theirs = (t.drop_duplicates("repeat", keep="last").set_index("repeat") for t in moving)
    if ours.empty or theirs.empty:
        return _NOTHING
    pairs = [repeat for repeat in ours.index if repeat in set(theirs.index)]
    if len(pairs) >= 2:
        values = [ours["value"][pair] / theirs["value"][pair] for pair in pairs]
        centre, half = mean(logs := [math.log(value) for value in values]), half_width(logs)
        return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))
    if not pairs:  # no repeat has both: the ratio of means, without an interval
        return Interval(mean(ours["value"].tolist()) / mean(theirs["value"].tolist()), math.nan, math.nan)
    one, other = (t.loc[[pairs[0]]].iloc[0] for t in (ours, theirs))
    ratio = float(one["value"] / other["value"])
    relative = [float((run["high"] - run["low"]) / 2 / run["value"]) for run in (one, other)]
    half = math.hypot(*relative)  # of the logarithm, for independent errors; NaN when either is unknown
    return Interval(ratio, ratio * math.exp(-half), ratio * math.exp(half))


def wide(table: pd.DataFrame, allow_unlike: bool = False) -> pd.DataFrame:
    """Return throughput in the layout of HFTA's CSV: the index is B, with columns `{mode}:{precision}:{run}`, `:avg`,
    `:min` and `:max`, and `:state` if the runs have a note on the machine.

    Unlike in HFTA, only Bs that were measured have values; nothing between them is interpolated. With several jobs,
    names begin with `{job}:`; the runs of several plans are numbered consecutively.

    Args:
        table: runs, from :func:`dnnsuite.results.load`; values are items per second.
        allow_unlike: pool runs of different machines or jobs.

    Raises:
        UnlikeRuns: the runs must not be pooled; see :func:`summarize`.
    """
    whole = pool.measured(complete(table))
    unlike(whole, allow_unlike)
    several = whole["job"].nunique() > 1
    columns: dict[str, pd.Series[Any]] = {}
    for job, of_job in whole.groupby("job"):
        number = _numbers(of_job)
        groups = {
            (str(mode), str(precision)): runs for (mode, precision), runs in of_job.groupby(["mode", "precision"])
        }
        for key in sorted(groups, key=lambda key: by_mode(*key)):
            name = ":".join([str(job), *key] if several else key)
            rates: dict[int, dict[Any, float]] = {}
            for B, cell in groups[key].groupby("B"):
                for run in runs_of(cell).to_dict("records"):
                    rates.setdefault(number[run["repeat"]], {})[B] = run["value"]
            by_run = pd.DataFrame({repeat: rates[repeat] for repeat in sorted(rates)}).sort_index()
            states = (
                groups[key].groupby("B")["disturbances"].agg(lambda notes: SEPARATOR.join(filter(None, set(notes))))
            )
            columns |= {f"{name}:{repeat}": by_run[repeat] for repeat in by_run.columns}
            columns |= {
                f"{name}:avg": by_run.mean(axis=1),
                f"{name}:min": by_run.min(axis=1),
                f"{name}:max": by_run.max(axis=1),
                **({f"{name}:state": states} if any(states) else {}),
            }
    frame = pd.DataFrame(columns)
    frame.index.name = "B"
    return frame.sort_index()


def _numbers(runs: pd.DataFrame) -> dict[tuple[str, int], int]:
    """Return a number for each repeat of each plan: the repeat's own where there is one plan."""
    pairs = sorted(dict.fromkeys(zip(runs["plan_id"], runs["repeat"], strict=True)))
    one = runs["plan_id"].nunique() == 1
    return {pair: pair[1] if one else index for index, pair in enumerate(pairs)}
