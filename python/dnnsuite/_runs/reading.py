# SPDX-License-Identifier: MIT
"""Read records back: one file, or every run of a directory; damaged ones are named and left out.

Records of a sweep's trials are lines of a file, a file for each process that writes; the last of a trial counts. A tiny
trial takes a millisecond, and a folder with a file of its own would cost as much again. What ends at the same moment is
added at once; a half of a line that a killed process has left is no line, and goes before the next is added.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .._files import TEMPORARY, OutputError, Unsealed, read_sealed, replacing, sealed, unsealed
from ..errors import Error, reason
from .old_records import from_old, is_old
from .record import BadRecord, RunRecord

LOGS = "trials*.jsonl"


class Lines:
    """Lines of a file that only grows, and to which one process at a time adds; readers see whole ones.

    Attributes:
        end: place after those that were read.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.end = path, 0

    def read(self) -> list[str]:
        """Return the whole lines that are new since the last call."""
        with open(self.path, "rb") as file:
            file.seek(self.end)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.end += len(whole)
        return whole.decode(errors="replace").splitlines()

    def add(self, lines: Sequence[str]) -> int:
        """Add lines where those that were read end, all of them or none; return their bytes. They are to be read, too.

        Raises:
            OutputError: naming the file.
        """
        data = "".join(f"{line}\n" for line in lines).encode()
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                if os.fstat(file).st_size != self.end:
                    os.ftruncate(file, self.end)
                written = 0
                while written < len(data):
                    written += os.pwrite(file, data[written:], self.end + written)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file, self.end)
                raise
            finally:
                os.close(file)
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {reason(error)}") from error
        return len(data)


class TrialLog:
    """The file to which this process adds records.

    Args:
        spare_bytes: size of the lines that later ones replace, and that may stay.
    """

    def __init__(self, path: Path, spare_bytes: int = 2**20) -> None:
        self._lines: Lines | None = None
        self._path, self._spare, self._last, self._bytes = path, spare_bytes, dict[str, str](), 0

    def add(self, records: Mapping[str, RunRecord], at_once: bool = False) -> None:
        """Add the records of runs of these names: all or none, where a kill must not leave some of them (`at_once`)."""
        new = {name: sealed({"run": name, **record.to_dict()}) for name, record in records.items()}
        if self._lines is None:
            self._begin()
        assert self._lines is not None
        if at_once:
            self._keep(self._last | new)
            return
        self._lines.end += self._lines.add(list(new.values()))
        self._last |= new
        self._bytes += sum(map(len, new.values()))
        if self._bytes > 2 * sum(map(len, self._last.values())) + self._spare:
            self._keep(self._last)  # one that trains for days is written every minute

    def forget(self) -> None:
        """Remove all records, of every process."""
        for path in self._path.parent.glob(LOGS):
            path.unlink()
        self._lines = None

    def _begin(self) -> None:
        lines = Lines(self._path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            known = lines.read() if self._path.exists() else []
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {reason(error)}") from error
        for line in known:
            with suppress(BadRecord):
                self._last[_record_in(line)[0]] = line
            self._bytes += len(line)
        self._lines = lines

    def _keep(self, last: dict[str, str]) -> None:
        """Make a file of these lines alone, the last of each run."""
        with replacing(self._path) as temporary:
            Lines(temporary).add(list(last.values()))
        self._lines, self._last = Lines(self._path), last
        self._lines.read()
        self._bytes = sum(map(len, last.values()))


def read_trials(folder: Path) -> tuple[list[tuple[str, RunRecord]], list[str]]:
    """Return (name and record of each trial; a sentence for each line that is damaged or was edited).

    Of several processes that wrote of a trial, the one that came furthest with it has the last word.
    """
    found: dict[tuple[str, str], RunRecord] = {}
    problems: list[str] = []
    for path in sorted(folder.glob(LOGS)):
        try:
            log = Lines(path)
            lines = log.read()
            if path.stat().st_size > log.end:
                problems.append(f"skipped: {path}: its last line is half of one, as a killed process leaves it")
        except OSError as error:
            problems.append(f"skipped: {path}: {reason(error)}")
            continue
        for number, line in enumerate(lines, 1):
            try:
                name, record = _record_in(line)
            except BadRecord as error:
                problems.append(f"skipped: {path}, line {number}: {reason(error)}")
                continue
            key = name, record.plan_id
            if key not in found or _reached(record) >= _reached(found[key]):
                found[key] = record
    return [(name, record) for (name, _), record in sorted(found.items(), key=lambda each: each[0])], problems


def _record_in(line: str) -> tuple[str, RunRecord]:
    try:
        values = unsealed(json.loads(line))
        return str(values["run"]), RunRecord.from_dict(values)
    except (Unsealed, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadRecord(reason(error)) from error


def _reached(record: RunRecord) -> tuple[int, bool]:
    return int(record.details.get("epochs", 0)), record.details.get("status") not in ("running", "paused")


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
