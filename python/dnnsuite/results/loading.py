# SPDX-License-Identifier: MIT
"""Runs in any mixture of directories as one table."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from .._lazy import pandas as pd
from .._runs.folder import PROFILES_FILE, SUITE_FILE, THROUGHPUT_FILE, WORKFLOW_FILE
from .._runs.reading import LOGS, RUN_FILE, ReadRun, output_directory, read_run, read_trials
from .._runs.record import FASTEST, WITH_LOADER, BadRecord, Metric, RunRecord, quality_text
from ..errors import Error, InvalidArgument
from .hfta import rows_of_hfta
from .mila import rows_of_mila, rows_of_milabench
from .table import SEPARATOR, Row, frame_of, read_csv

_SAVED = "results.csv"  # the table that a workflow leaves beside its runs
_RUN_NAME = re.compile(r"-r\d+(-d\d+)?$")
_STATES = (WORKFLOW_FILE, SUITE_FILE, PROFILES_FILE, THROUGHPUT_FILE)  # beside the folder of runs


def load(*directories: str | Path, name: str | None = None) -> pd.DataFrame:
    """Load all runs below the directories into one tidy table: a row per run, replica and metric.

    Args:
        directories: each is an output of a workflow, suite, training, sweep or profile; one run of those; a folder that
            contains them at any depth; a tree of HFTA's `timing.csv` files; a folder of results of mila-iqia/training
            or milabench; or a table that :func:`save_csv` wrote, if the runs no longer exist.
        name: name of the workflow or suite to load; others are left out.

    Returns:
        The table, with the columns `COLUMNS`. `replica` is missing in rows about the whole run. `low` and `high` are
        the limits of a 95 % interval if it is known. A failed run has one row, without a value.
        `table.attrs["problems"]` has a sentence for each damaged record, which is left out, and `table.attrs["notes"]`
        one for runs that were found twice and counted once.

    Raises:
        InvalidArgument: a directory is missing, or contains no run that can be read; the message names it.
    """
    if not directories:
        raise InvalidArgument("no directory to load runs from")
    found = _Found()
    tables = [found.table_of(Path(directory), name) for directory in directories]
    table = pd.concat([each for each in tables if len(each)] or tables[:1], ignore_index=True)
    table.attrs |= {"problems": found.problems, "notes": found.notes}  # and that it is complete
    return table


@dataclass
class _Found:
    """Runs, problems and notes of the directories read so far."""

    runs: dict[str, Path] = field(default_factory=dict)  # where each was read from, by its id
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def table_of(self, root: Path, name: str | None) -> pd.DataFrame:
        """Return the table of one directory."""
        if not root.is_dir() and root.suffix != ".csv":
            raise InvalidArgument(f"{root}: no such directory")
        before = len(self.problems)
        table = self._read(root, name)
        if table is None:
            wanted = f" of {name!r}" if name else ""
            problems = self.problems[before:]
            why = f" ({len(problems)} {problems[0]})" if problems else ""
            raise InvalidArgument(f"{root}: no finished runs{wanted} in it{why}")
        new = [run_id for run_id in dict.fromkeys(table["run_id"]) if run_id not in self.runs]
        again = table["run_id"].nunique() - len(new)
        if again:
            self.notes.append(f"{again} runs in {root} were read already under the same id: counted once")
        kept = table[table["run_id"].isin(new)]
        self.runs |= dict.fromkeys(new, root)
        return kept

    def _read(self, root: Path, name: str | None) -> pd.DataFrame | None:
        """Return the table of the first form that `root` holds something of; None if it holds no run that can be
        read."""
        if root.is_file():
            return _of_plan(read_csv(root), name)
        directories = list(_run_directories(root, set()))
        if directories:
            rows = [row for row in self._rows(directories) if name in (None, row.plan)]
            return frame_of(rows) if rows else None
        if (root / _SAVED).is_file():
            return _of_plan(read_csv(root / _SAVED), name)
        for read in (rows_of_hfta, partial(rows_of_milabench, name=name), partial(rows_of_mila, name=name)):
            rows, problems = read(root)
            self.problems += problems
            if rows:
                return frame_of(rows)
        return None

    def _runs_in(self, directories: Iterable[Path]) -> Iterator[tuple[Path, RunRecord | None]]:
        """Yield the directories of runs, and the trials of a sweep with their records."""
        for directory in directories:
            trials, problems = read_trials(directory)
            self.problems += problems
            yield from ((directory / name, record) for name, record in trials)
            if not trials and not problems:
                yield directory, None

    def _rows(self, directories: Iterable[Path]) -> Iterator[Row]:
        """Yield the rows of the runs in these directories; damaged ones and copies are noted and left out."""
        seen: dict[str, Path] = {}
        for directory, record in self._runs_in(directories):
            try:
                record = record or read_run(directory / RUN_FILE)
                rows = list(rows_of_record(ReadRun(directory, record)))
            except BadRecord as error:
                told = str(error)
                self.problems.append(f"skipped: {told if str(directory) in told else f'{directory}: {told}'}")
                continue
            if record.id in seen:
                self.notes.append(f"{directory} is a copy of {seen[record.id]}: counted once")
                continue
            seen[record.id] = directory
            yield from rows


def _of_plan(table: pd.DataFrame, name: str | None) -> pd.DataFrame | None:
    kept = table if name is None else table[table["plan"] == name]
    return kept if len(kept) else None


def _run_directories(folder: Path, visited: set[str]) -> Iterator[Path]:
    """Directories of runs at or below `folder`, by name; one that lost its file is among them, to be named.

    Args:
        folder: folder to search; hidden directories in it, which hold unfinished runs, are skipped.
        visited: real paths that were looked at already; a link may lead back.
    """
    if (real := os.path.realpath(folder)) in visited:
        return
    visited.add(real)
    if (folder / RUN_FILE).is_file() or next(folder.glob(LOGS), None):
        yield folder
        return
    try:
        children = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise Error(f"{folder}: {error.strerror}") from error
    # Beside runs, everything is a run.
    of_runs = os.path.basename(real) == "runs" and (
        any((folder.parent / state).is_file() for state in _STATES)
        or any((child / RUN_FILE).is_file() or _RUN_NAME.search(child.name) for child in children)
    )
    for child in children:
        if of_runs:
            yield child
        else:
            yield from _run_directories(child, visited)


def rows_of_record(run: ReadRun) -> Iterator[Row]:
    """One row per metric; one without a value for a run that failed, or that found nothing.

    Raises:
        BadRecord: a value that only a suite's run has is missing or impossible; the message names it.
    """
    record, common = run.record, _common(run)
    seed = _seed_unit(record)
    if not record.ok or not record.metrics:
        yield replace(common, unit=f"{record.unit}/s", seed_unit=seed[0] if seed else "")
    for metric in record.metrics:
        row = replace(
            common, metric=metric.name, value=metric.value, unit=metric.unit, replica=metric.replica,
            low=math.nan if metric.low is None else metric.low,
            high=math.nan if metric.high is None else metric.high,
        )  # fmt: skip
        if seed and metric.name == "throughput" and metric.replica is None:
            loaded = next((each for each in record.metrics if each.name == WITH_LOADER), None)
            row = replace(row, seed_unit=seed[0], seed_rate=_seed_rate(record, loaded or metric, seed[1]))
            row = replace(row, seed_feed="loader") if loaded else row
        yield row


def _common(run: ReadRun) -> Row:
    """Return the columns that all rows of a run share."""
    record = run.record
    point = f"batch_size={record.batch_size}" if record.kind == "throughput" and record.batch_size else ""
    return Row(
        job=record.job, device=record.device.type, mode=record.mode, precision=record.precision, B=record.B,
        repeat=record.repeat, status=record.verdict.status, failure=record.verdict.failure,
        run=run.directory.resolve().name, kind=record.kind, plan=record.plan, plan_id=record.plan_id,
        plan_path=str(output_directory(run.directory)), run_id=record.id, share=record.share,
        copies=record.copies, processes=record.processes, threads=record.threads,
        batch_size=record.batch_size, preset=record.preset, data=record.data, job_version=record.job_version,
        variant=record.variant or _second(record) or point,
        changed=SEPARATOR.join(f"{name}={value}" for name, value in record.changed.items()), feed=record.feed,
        seed_feed=record.feed, skipped_steps=record.skipped_steps, seed=record.seed, item=record.unit,
        disturbances=SEPARATOR.join(record.disturbances), message=record.verdict.message,
        started=record.started.utc, seconds=record.seconds, path=str(run.directory),
        isolation=record.isolation.level, page_cache=record.page_cache, hostname=record.machine.hostname,
        cpu_model=record.machine.cpu_model, cpus=record.machine.cpus, gpus=", ".join(record.machine.gpus),
        driver=record.machine.driver, system=record.machine.system, device_name=record.device.name,
        torch=str(record.versions.get("torch") or ""), dnnsuite=str(record.versions.get("dnnsuite") or ""),
        commit=record.commit, **_judged(record),
    )  # fmt: skip


def _judged(record: RunRecord) -> dict[str, Any]:
    """Return what was learned, and the weight of the job."""
    weight, quality = (record.details.get(name) for name in ("weight", "quality"))
    try:
        if not 0 < (own := 1.0 if weight is None else float(weight)) < math.inf:
            raise ValueError
        return {"quality": quality_text(record), "weight": own}
    except (KeyError, TypeError, ValueError) as error:
        raise BadRecord(f"weight {weight!r} or quality {quality!r} is none that can be") from error


def _second(record: RunRecord) -> str:
    """Suffix that distinguishes the second job of a name in a suite of an earlier version."""
    key = str(record.details.get("key") or "") if record.kind == "suite" else ""
    number = key.removeprefix(f"{record.job}.")
    return f"#{number}" if number != key and number.isdecimal() else ""


def _seed_unit(record: RunRecord) -> tuple[str, float] | None:
    """Return (name, items of the job in one) of what the original suite counted; None for what is no run of a suite."""
    if record.kind != "suite":
        return None
    unit = record.details.get("seed_unit")
    try:
        name, items = str(unit["name"]), float(unit["items"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadRecord(f"seed_unit is {unit!r}: not a name and a number of items") from error
    if not 0 < items < math.inf:
        raise BadRecord(f"seed_unit has {items} items: not a positive number")
    return name, items


def _seed_rate(record: RunRecord, metric: Metric, items: float) -> float:
    """Rate in the original's unit; for `scaling`, whose target is 1, the share of the first that each device adds."""
    if record.job != "scaling":
        return metric.value / items
    metrics = record.details.get("job_metrics")
    found = metrics.get("efficiency") if isinstance(metrics, Mapping) else None
    if found is None:
        return math.nan
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found < FASTEST:
        raise BadRecord(f"efficiency is {found!r}: not a number that it can be")
    return float(found)
