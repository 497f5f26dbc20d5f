# SPDX-License-Identifier: MIT
"""SQLite files of other tools: only read, their tables as columns of whole numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lazy import pandas as pd
from ._text import BadFile, read_bytes

Columns = dict[str, NDArray[Any]]

# Our names of CUPTI's columns, as both nvvp and nsys keep them: of all work on a device, of a kernel's launch, and of
# what it takes.
WORK = {
    "t0_ns": "start", "t1_ns": "end", "device": "deviceId", "context": "contextId", "stream": "streamId",
    "correlation": "correlationId",
}  # fmt: skip
LAUNCH = WORK | {
    "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ",
    "block_x": "blockX", "block_y": "blockY", "block_z": "blockZ",
}  # fmt: skip
RESOURCES = {
    "registers_per_thread": "registersPerThread", "static_shared_bytes": "staticSharedMemory",
    "dynamic_shared_bytes": "dynamicSharedMemory", "local_bytes_per_thread": "localMemoryPerThread",
}  # fmt: skip


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file to read only. Every error of SQLite's becomes BadFile, also one that quotes bytes."""
    if not path.is_file():
        read_bytes(path)  # raises, saying what is there instead
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        db.text_factory = lambda raw: raw.decode(errors="replace")
        try:
            yield db
        finally:
            db.close()
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise BadFile(path, f"{error}: no SQLite file, or a damaged one; export it again") from error


def tables_in(path: Path) -> set[str]:
    """Names of the tables and views of a file.

    Raises:
        BadFile: no SQLite file, or a damaged one.
    """
    with opened(path) as db:
        return _tables(db)


def _tables(db: sqlite3.Connection) -> set[str]:
    return {str(name) for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}


class Database:
    """One file: its tables as columns, its string table as texts and the index of each number into them."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path, self.db, self.tables = path, db, _tables(db)
        self.strings: list[str] = [""]
        self._code_of: dict[int, int] = {}

    def has(self, table: str) -> set[str]:
        """Return the table's columns; none when there is no such table."""
        if table not in self.tables:
            return set()
        return {str(row[1]) for row in self.db.execute(f'PRAGMA table_info("{table}")')}

    def columns(self, table: str, wanted: Mapping[str, str], where: str = "") -> Columns:
        """Columns of whole numbers, by our name; 0 where the schema lacks one, or a row has none.

        Raises:
            BadFile: the table has no start and end, or no timestamp.
        """
        there = self.has(table)
        if there and not ({"start", "end"} <= there or "timestamp" in there):
            raise BadFile(self.path, f"table {table} has no columns start and end: an unknown schema")
        if not there:
            return {name: np.zeros(0, np.int64) for name in wanted}
        terms = [_term(column) if column in there else "0" for column in wanted.values()]
        cursor = self.db.execute(f'SELECT {", ".join(terms)} FROM "{table}" {where}')
        flat = np.fromiter(chain.from_iterable(cursor), np.int64).reshape(-1, len(wanted))
        return {name: np.ascontiguousarray(flat[:, number]) for number, name in enumerate(wanted)}

    def read_strings(self, table: str, number: str) -> None:
        """Take in a string table, whose column `number` other tables refer to."""
        if table not in self.tables:
            return
        for key, value in self.db.execute(f"SELECT {_term(number)}, CAST(value AS TEXT) FROM {table}"):
            self._code_of[key] = len(self.strings)
            self.strings.append(str(value or ""))

    def codes(self, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
        """Indices into `strings` for numbers of the string table; "" for one that is not in it."""
        return mapped(numbers, self._code_of, 0).astype(np.int32)


def mapped(numbers: NDArray[np.int64], values: Mapping[int, int], other: int) -> NDArray[np.int64]:
    """Values by number; `other` for a number that has none."""
    found: NDArray[np.int64] = pd.Series(numbers).map(values).fillna(other).to_numpy().astype(np.int64)
    return found


def joined(parts: Sequence[Columns]) -> Columns:
    """Join the rows of several tables; columns that one of them lacks are 0 there."""
    names = dict.fromkeys(name for part in parts for name in part)
    none = [np.zeros(len(part["t0_ns"]), np.int64) for part in parts]
    return {name: np.concatenate([p.get(name, zeros) for p, zeros in zip(parts, none, strict=True)]) for name in names}


def _term(column: str) -> str:
    return f'COALESCE(CAST("{column}" AS INTEGER), 0)'
