# SPDX-License-Identifier: MIT
"""Runs in any mixture of directories as one table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .._runs.folder import PROFILES_FILE, SUITE_FILE, THROUGHPUT_FILE, WORKFLOW_FILE
from .._runs.reading import RUN_FILE, ReadRun, read_run
from .._runs.record import BadRecord, RunRecord
from .._runs.trials import LOGS, read_trials
from ..errors import Error, InvalidArgument
from .hfta import rows_of_hfta
from .mila import rows_of_mila
from .milabench import rows_of_milabench
from .records import rows_of_record
from .table import Row, frame_of, read_csv

if TYPE_CHECKING:
    import pandas as pd

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
    import pandas as pd

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
