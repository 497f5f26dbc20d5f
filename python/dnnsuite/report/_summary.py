# SPDX-License-Identifier: MIT
"""Figures for a decision to buy: each job's rate with an interval, differences of devices, failures with reasons."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev

from .._lazy import pandas
from ..errors import Error, InvalidArgument
from ..results.intervals import half_width, mean, of_rates
from ..results.monitor import rows_of_monitor
from ..results.pool import refuse_unlike
from ._entries import FAILURES, ReportEntry, by_job, by_run, entries_of, finished, rows_of_report, table_of

COST_DEFINITIONS = {
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
    table = table_of(rows, COST_DEFINITIONS).dropna(axis=1, how="all")
    table.attrs["definitions"] = {name: said for name, said in COST_DEFINITIONS.items() if name in table.columns}
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


DEFINITIONS = {
    "runs": "runs of the suite (repeats, of a workflow) in which every copy of the job was measured",
    "copies": "how many trained at the same time, each in its own share of the machine",
    "rate_per_s": "items per second of one copy: mean over runs of the mean over its devices, waits for data included",
    "low_per_s": "lower end of the 95 % interval of rate_per_s: t over runs, on logarithms",
    "high_per_s": "upper end of it",
    "machine_per_s": "items per second of the whole machine: copies x rate_per_s",
    "with_loader_per_s": "rate_per_s of jobs whose batches are in memory, measured again with a loader of files",
    "between_runs_pct": "sample standard deviation over runs / rate, in percent",
    "between_devices_pct": "(fastest - slowest device) / rate, of the devices' means over runs, in percent",
    "failed": "executions that gave no rate",
    "flags": "executions in which something else used the machine, or clocks were lowered; they are kept",
}


def summary_table(entries: Sequence[ReportEntry]) -> pandas.DataFrame:
    """One row per job, with the columns of `DEFINITIONS` and unit, isolation; rates in the job's own unit."""
    rows = {job: _row(of_job) for job, of_job in by_job(entries).items()}
    return table_of(rows, DEFINITIONS)


def _row(of_job: Sequence[ReportEntry]) -> dict[str, object]:
    measured = finished(of_job)
    values = [mean(entry.rate for entry in of_run) for of_run in by_run(measured).values()]
    average, low, high = of_rates(values)
    sd = stdev(values) if len(values) > 1 else math.nan
    devices = list(_devices(measured).values())
    spread = max(devices) - min(devices) if len(devices) > 1 else math.nan
    return {
        "runs": len(values),
        "copies": max((entry.copies for entry in of_job), default=0),
        "unit": of_job[0].unit,
        "rate_per_s": average,
        "low_per_s": low,
        "high_per_s": high,
        "machine_per_s": machine_rate(of_job),
        "with_loader_per_s": mean(mean(entry.loaded_rate for entry in of_run) for of_run in by_run(measured).values()),
        "between_runs_pct": 100 * sd / average if values else math.nan,
        "between_devices_pct": 100 * spread / average if values else math.nan,
        "failed": sum(not entry.ok for entry in of_job),
        "flags": sum(bool(entry.flags) for entry in of_job),
        "isolation": "/".join(sorted({entry.isolation for entry in of_job})),
    }


TO_TARGET = {
    "metric": "what a run needed until the measure on held-out samples was as good as the target of its definition",
    "seeds": "models that were there; in an array all of them",
    "mean": "mean over the seeds of seconds of training without validation, or of samples",
    "low": "lower end of its 95 % interval: t over seeds, on logarithms",
    "high": "upper end of it",
}


def target_table(rows: pandas.DataFrame, table: pandas.DataFrame) -> pandas.DataFrame | None:
    """Cost of training to a target, by job and metric, with the columns of `TO_TARGET`; None without such a run.

    Args:
        rows: rows of the report, for the jobs' names.
        table: all metrics of their runs. Seeds are models of an array, or runs of one model each.
    """
    own = table[table["metric"].str.endswith(" to target") & table["run_id"].isin(rows["run_id"])]
    if own.empty:
        return None
    own = own.assign(job=own["run_id"].map(dict(zip(rows["run_id"], rows["job"], strict=True))))
    found = []
    for (job, metric), of_job in own.groupby(["job", "metric"], sort=False):
        models = of_job[of_job["replica"].notna()]
        seeds = models if len(models) else of_job
        if len(models) and of_job["replica"].notna().all():
            continue  # some were not there, of which a mean would be too good
        average, low, high = of_rates(seeds["value"].tolist())
        found.append({"job": job, "metric": metric, "seeds": len(seeds), "mean": average, "low": low, "high": high})
    made = pandas.DataFrame(found, columns=["job", *TO_TARGET]).set_index("job")
    made.attrs["definitions"] = TO_TARGET
    return made if found else None


def _devices(measured: Sequence[ReportEntry]) -> dict[str, float]:
    """Each device's mean over runs."""
    found: dict[str, list[float]] = {}
    for entry in measured:
        found.setdefault(entry.device, []).append(entry.rate)
    return {device: mean(rates) for device, rates in sorted(found.items())}


def device_table(entries: Sequence[ReportEntry]) -> pandas.DataFrame:
    """Jobs x devices: each device's mean rate over that of the job's fastest device; jobs with one device left out."""
    rows = {}
    for job, of_job in by_job(finished(entries)).items():
        devices = _devices([entry for entry in of_job if entry.scope == "student"])
        if len(devices) > 1:
            rows[job] = {device: rate / max(devices.values()) for device, rate in devices.items()}
    table = table_of(rows, {})
    return table.reindex(sorted(table.columns, key=lambda device: (len(device), device)), axis=1)


def failures(entries: Sequence[ReportEntry]) -> dict[str, list[ReportEntry]]:
    """Entries that failed, by class, in the order of `FAILURES`."""
    found: dict[str, list[ReportEntry]] = {kind: [] for kind in FAILURES}
    for entry in entries:
        if not entry.ok:
            found[entry.failure if entry.failure in FAILURES else "crash"].append(entry)
    return {kind: of_kind for kind, of_kind in found.items() if of_kind}


def isolation(entries: Sequence[ReportEntry]) -> dict[str, int]:
    """Counts of executions by isolation level: `cgroup`, `affinity`, `none` or `unknown`."""
    return dict(sorted(Counter(entry.isolation for entry in entries).items()))


INTERFERENCE_DEFINITIONS = {
    "copies": "how many trained at the same time",
    "alone_per_s": "items per second of one copy that has a share of the machine, and no neighbour",
    "shared_per_s": "items per second of one copy of several, each in its share",
    "slowdown": "alone / shared: 1 is no interference",
    "low": "lower end of the 95 % interval of slowdown (t over runs on logarithms, unpaired)",
    "high": "upper end of it",
    "machine_gain": "copies x shared / alone: what the machine yields more than one copy alone",
    "left_out": "runs of both that do not count, as one of their copies failed: the others had more of the machine",
    "verdict": "slower: the interval lies above 1; same: it lies within 5 % of 1; else inconclusive",
}
_SAME = 0.05


def interference_table(alone: pandas.DataFrame, shared: pandas.DataFrame) -> pandas.DataFrame:
    """One row per job that was measured with one copy and with several.

    Args:
        alone: results of `dnnsuite run --alone`, as `results.load` gives them.
        shared: results of the same suite with several copies.

    Raises:
        InvalidArgument: no job was measured both ways.
        UnlikeRuns: they differ in more than the number of copies.
    """
    one, many = rows_of_report(alone), rows_of_report(shared)
    rows = pandas.concat([one[one["copies"] == 1], many[many["copies"] > 1]], ignore_index=True)
    rows = rows[rows["share"] != "all"]
    entries = entries_of(rows)
    single = [entry for entry in entries if entry.copies == 1]
    several = [entry for entry in entries if entry.copies > 1]
    common = by_job(finished(single)).keys() & by_job(finished(several)).keys()
    if not common:
        raise InvalidArgument(
            "no job was measured both with one copy and with several that all ended well: give outputs of the same "
            "jobs, one of `dnnsuite run --alone`"
        )
    refuse_unlike(rows[rows["job"].isin(common)], ("job",), ignoring=("copies",))
    found = {job: _sharing(by_job(single)[job], by_job(several)[job]) for job in sorted(common)}
    return table_of(found, INTERFERENCE_DEFINITIONS)


def _sharing(alone: Sequence[ReportEntry], shared: Sequence[ReportEntry]) -> dict[str, object]:
    one, many = _rates(alone), _rates(shared)
    copies = max(entry.copies for entry in shared)
    slowdown = mean(one) / mean(many)
    widths = [half_width([math.log(rate) for rate in rates]) for rates in (one, many)]
    half = math.hypot(*widths)
    low, high = slowdown * math.exp(-half), slowdown * math.exp(half)
    return {
        "unit": alone[0].unit,
        "copies": copies,
        "alone_per_s": mean(one),
        "shared_per_s": mean(many),
        "slowdown": slowdown,
        "low": low,
        "high": high,
        "machine_gain": copies / slowdown,
        "left_out": len(by_run(alone)) - len(one) + len(by_run(shared)) - len(many),
        "verdict": "slower" if low > 1 else "same" if low > 1 - _SAME and high < 1 + _SAME else "inconclusive",
    }


def _rates(entries: Sequence[ReportEntry]) -> list[float]:
    return [mean(entry.rate for entry in of_run) for of_run in by_run(finished(entries)).values()]
