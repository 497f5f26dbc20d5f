# SPDX-License-Identifier: MIT
"""Read records back: one file, or every run of a directory; damaged ones are named and left out."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .._files import TEMPORARY, read_sealed
from ..errors import Error, reason
from .old_records import from_old, is_old
from .record import BadRecord, RunRecord
from .trials import read_trials

RUN_FILE = "run.json"


class ReadRun(NamedTuple):
    """A record and the directory it was read from."""

    directory: Path
    record: RunRecord


def output_directory(run: Path) -> Path:
    """Return the output directory that a run's directory lies in."""
    folder = run.resolve().parent
    return folder.parent if folder.name == "runs" else folder


def read_run(path: Path) -> RunRecord:
    """Return the record in a `run.json`.

    Raises:
        BadRecord: it is missing, damaged or no record; the message names the file.
    """
    try:
        values = read_sealed(path)
        return from_old(values, path) if is_old(values) else RunRecord.from_dict(values)
    except BadRecord as error:
        raise BadRecord(f"{path}: {reason(error)}") from error
    except Error as error:
        raise BadRecord(str(error)) from error


def read_runs(folder: Path) -> tuple[list[ReadRun], list[str]]:
    """Return (finished runs below `folder`, by name; a sentence for each damaged one, which is left out)."""
    trials, problems = read_trials(folder)
    runs = [ReadRun(folder / name, record) for name, record in trials]
    if trials or problems:
        return runs, problems
    directories = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    for directory in directories:
        if directory.name.startswith(TEMPORARY):
            continue
        try:
            runs.append(ReadRun(directory, read_run(directory / RUN_FILE)))
        except BadRecord as error:
            problems.append(f"skipped: {error}")
    return runs, problems
