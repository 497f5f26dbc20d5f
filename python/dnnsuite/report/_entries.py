# SPDX-License-Identifier: MIT
"""Entries of a report: one for each execution of a job on one device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from .._lazy import pandas as pd
from .._runs.record import MISSED, WITH_LOADER
from ..results.pool import conditions, whole_runs
from ..results.table import SEPARATOR

# The classes of failure, in the order in which they are shown. `data`: the data asked for were not there.
FAILURES = (
    "oom", "nan", "invalid", "timeout", "killed", "crash", "no steady state", "contaminated", "data",
    "unavailable", "refused",
)  # fmt: skip
_INCONCLUSIVE = rf"(?:^|{SEPARATOR})inconclusive"
_OF_SUITES = ("suite", "mila")  # kinds of runs that the original suite's targets, table and score are for


@dataclass(frozen=True)
class ReportEntry:
    """One execution of a job, in one run of the suite, on one device.

    Rates are items per second of wall time, NaN if the execution failed: `rate` in the job's own `unit`, and
    `seed_rate` in the unit of the original suite and of its targets, with batches from `seed_feed`. `loaded_rate` is
    the second rate of a job that was also measured with a loader. `interval` is the interval of `rate` within the run.

    `base` is the job's name without its variant. `conditions` must agree between entries whose rates are pooled.
    `quality` is the metric on held-out data beside its target, and `missed` says whether the target was missed.
    `weight` is the weight in the score. `counts` is True if all copies of the run were measured, see
    `results.pool.whole_runs`.
    """

    job: str
    run: str
    device: str
    rate: float
    seed_rate: float
    unit: str = "items"
    seed_unit: str = "items"
    scope: str = "student"
    copies: int = 1
    interval: tuple[float, float] | None = None
    failure: str | None = None
    message: str = ""
    isolation: str = "unknown"
    flags: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    path: Path = Path()
    kind: str = "suite"
    base: str = ""
    seed_feed: str = ""
    loaded_rate: float = math.nan
    repeat: int = 0
    seed: int = 0
    hostname: str = ""
    driver: str = ""
    system: str = ""
    started: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    plan: str = ""
    quality: str = ""
    missed: bool = False
    weight: float = 1.0
    counts: bool = True

    @property
    def bench(self) -> str:
        """Name of the job in files of targets: without the variant of a jobs file."""
        return self.base or self.job

    @property
    def ok(self) -> bool:
        """True if it was measured."""
        return self.failure is None

    @property
    def inconclusive(self) -> bool:
        """True if the machine was too busy to measure the rate."""
        return any(flag.startswith("inconclusive") for flag in self.flags)


def rows_of_report(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that a report is made of: one for each run, its job named as the report names it.

    A suite has a row per job. Other runs differ in mode, precision and B, and have a row for each of those.
    """
    of_run = table[table["replica"].isna()]
    whole = of_run[of_run["metric"] == "throughput"]
    loaded = of_run[of_run["metric"] == WITH_LOADER].drop_duplicates("run_id").set_index("run_id")["value"]
    columns = ("job", "variant", "kind", "mode", "precision", "B")
    names = []
    for job, variant, kind, mode, precision, B in zip(*(whole[name].tolist() for name in columns), strict=True):
        own = f"{job} [{variant}]" if variant else job
        names.append(own if kind in _OF_SUITES else f"{own} {mode} {precision} B={B}")
    rates = whole["run_id"].map(loaded).astype(float)
    measured = (whole["status"] == "ok") & whole["value"].abs().lt(math.inf)
    counts = whole_runs(whole, measured & ~whole["disturbances"].str.contains(_INCONCLUSIVE))
    return whole.assign(base=whole["job"], job=names, loaded_rate=rates, counts=counts)


def entries_of(rows: pd.DataFrame) -> list[ReportEntry]:
    """Return the entries of :func:`rows_of_report`."""
    values = [{str(name): value for name, value in row.items()} for row in rows.to_dict("records")]
    labels = _run_labels(values)
    return [_entry(row, labels[row["plan_id"], row["repeat"]]) for row in values]


def _entry(row: Mapping[str, Any], run: str) -> ReportEntry:
    failure = row["failure"] or (None if row["status"] == "ok" and math.isfinite(row["value"]) else "crash")
    known = math.isfinite(row["low"]) and math.isfinite(row["high"])
    told = row["disturbances"].split(SEPARATOR)
    return ReportEntry(
        run=run,
        device=row["share"],
        rate=row["value"],
        unit=row["item"],
        scope="all" if row["share"] == "all" else "student",
        interval=(row["low"], row["high"]) if known else None,
        failure=failure,
        isolation=row["isolation"] or "unknown",
        flags=tuple(flag for flag in told if flag not in ("", MISSED)),
        missed=MISSED in told,
        conditions=conditions(row),
        path=Path(row["path"]),
        versions={name: row[name] for name in ("torch", "dnnsuite", "commit") if row[name]},
        **{name: row[name] for name in _AS_IN_TABLE},
    )


_AS_IN_TABLE = (
    "job", "base", "seed_feed", "loaded_rate", "seed_rate", "seed_unit", "copies", "message", "kind", "repeat", "seed",
    "hostname", "driver", "system", "started", "plan", "quality", "weight", "counts",
)  # fmt: skip


def _run_labels(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], str]:
    """Return a name for each repeat of each plan: its directory and number, with as much of the path as tells them
    apart."""
    folders = {row["plan_id"]: Path(row["plan_path"]).resolve() for row in reversed(rows)}
    names = _shortest(folders)
    labels: dict[tuple[str, int], str] = {}
    for row in rows:
        plan, number = row["plan_id"], row["run"] if row["kind"] == "mila" else f"{row['repeat']:03d}"
        bare = row["kind"] == "mila" and len(folders) == 1
        labels[plan, row["repeat"]] = number if bare else f"{names[plan]}/{number}"
    return labels


def _shortest(folders: Mapping[str, Path]) -> dict[str, str]:
    """Return the ends of paths, each long enough to be the only one."""
    for length in range(1, max((len(folder.parts) for folder in folders.values()), default=1) + 1):
        names = {plan: "/".join(folder.parts[-length:]) for plan, folder in folders.items()}
        if len(set(names.values())) == len(names):
            return names
    return {plan: f"{folder.name}#{index}" for index, (plan, folder) in enumerate(folders.items())}


def of_suites(entries: Iterable[ReportEntry]) -> list[ReportEntry]:
    """Entries that the original suite's targets, table and score cover."""
    return [entry for entry in entries if entry.kind in _OF_SUITES]


def finished(entries: Iterable[ReportEntry]) -> list[ReportEntry]:
    """Entries of runs that count: none of their copies failed, is inconclusive or has lost its record."""
    return [entry for entry in entries if entry.ok and entry.counts]


def by_job(entries: Iterable[ReportEntry]) -> dict[str, list[ReportEntry]]:
    """Return the entries of each job, jobs by name."""
    return _by("job", entries)


def by_run(entries: Iterable[ReportEntry]) -> dict[str, list[ReportEntry]]:
    """Return the entries of each run of the suite."""
    return _by("run", entries)


def _by(name: str, entries: Iterable[ReportEntry]) -> dict[str, list[ReportEntry]]:
    every = sorted(entries, key=attrgetter(name))
    return {str(key): list(of_key) for key, of_key in groupby(every, attrgetter(name))}


def table_of(rows: dict[str, Any], definitions: Mapping[str, str]) -> pd.DataFrame:
    """Return a table with a row for each job, and with the definitions of its columns."""
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.name = "job"
    table.attrs["definitions"] = dict(definitions)
    return table
