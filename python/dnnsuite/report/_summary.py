# SPDX-License-Identifier: MIT
"""Figures for a decision to buy: each job's rate with an interval, differences of devices, failures with reasons."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..results.intervals import mean, of_rates
from ._costs import machine_rate
from ._entries import FAILURES, ReportEntry, by_job, by_run, finished, table_of

if TYPE_CHECKING:
    import pandas

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
    (average, low, high), sd = of_rates(values), _sd(values)
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
    import pandas

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


def _sd(values: Sequence[float]) -> float:
    if len(values) < 2:
        return math.nan
    average = mean(values)
    return math.sqrt(math.fsum((value - average) ** 2 for value in values) / (len(values) - 1))


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


def _class_of(entry: ReportEntry) -> str:
    """Return the class of a failure, `crash` when it is not one that is known here."""
    return entry.failure if entry.failure in FAILURES else "crash"


def failures(entries: Sequence[ReportEntry]) -> dict[str, list[ReportEntry]]:
    """Entries that failed, by class, in the order of `FAILURES`."""
    failed = [entry for entry in entries if not entry.ok]
    return {
        kind: [entry for entry in failed if _class_of(entry) == kind]
        for kind in FAILURES
        if any(_class_of(entry) == kind for entry in failed)
    }


def isolation(entries: Sequence[ReportEntry]) -> dict[str, int]:
    """Counts of executions by isolation level: `cgroup`, `affinity`, `none` or `unknown`."""
    return dict(sorted(Counter(entry.isolation for entry in entries).items()))
