# SPDX-License-Identifier: MIT
"""The SQLite file that `nsys export --type sqlite` writes, as the tables of :mod:`dnnsuite.profiler.activity`.

Schemas differ from version to version: tables are written only when they have rows, columns come and go, and texts are
texts or numbers of a string table. What a version does not have is 0, or an empty table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..profiler.activity.tables import tables_of
from ._text import BadFile, read_bytes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["is_nsys", "read"]

_KERNEL, _MEMCPY, _MEMSET, _RUNTIME, _DRIVER, _SYNC, _GRAPH = (
    f"CUPTI_ACTIVITY_KIND_{kind}"
    for kind in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "DRIVER", "SYNCHRONIZATION", "GRAPH_TRACE")
)
_NVTX, _OVERHEAD = "NVTX_EVENTS", "PROFILER_OVERHEAD"
_WORK = {
    "t0_ns": "start",
    "t1_ns": "end",
    "device": "deviceId",
    "context": "contextId",
    "stream": "streamId",
    "correlation": "correlationId",
}
_LAUNCH = _WORK | {
    "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ",
    "block_x": "blockX", "block_y": "blockY", "block_z": "blockZ",
    "cluster_x": "clusterX", "cluster_y": "clusterY", "cluster_z": "clusterZ",
    "registers_per_thread": "registersPerThread", "static_shared_bytes": "staticSharedMemory",
    "dynamic_shared_bytes": "dynamicSharedMemory", "local_bytes_per_thread": "localMemoryPerThread",
    "graph_id": "graphId", "graph_node": "graphNodeId", "globalPid": "globalPid",
}  # fmt: skip
_MEMOP = _WORK | {
    "bytes": "bytes",
    "graph_id": "graphId",
    "graph_node": "graphNodeId",
    "globalPid": "globalPid",
}
_MARK, _PUSH_POP, _START_END, _DOMAIN = 34, 59, 60, 75
_RUNTIME_CLASS = 0  # eventClass: 0 the runtime, 1 the driver
_MEMSET_OPERATION = 255
_DEVICE_MEMORY, _UNKNOWN_MEMORY = 3, 0
_PID_BITS, _TID_MASK = 24, (1 << 24) - 1

Columns = dict[str, NDArray[Any]]


def is_nsys(path: Path) -> bool:
    """Return True if an SQLite file has tables that nsys writes."""
    with _opened(path) as db:
        return bool(_tables(db) & {_KERNEL, _RUNTIME, _NVTX, "TARGET_INFO_SYSTEM_ENV", "META_DATA_EXPORT"})


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, which is only read. Whatever SQLite says of it, even if that quotes bytes, becomes BadFile."""
    if not path.is_file():
        raise BadFile(path, "no such file")
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        db.text_factory = lambda raw: raw.decode(errors="replace")
        try:
            yield db
        finally:
            db.close()
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise BadFile(path, f"{error}: no SQLite file, or a damaged one; export it again") from error


def _tables(db: sqlite3.Connection) -> set[str]:
    return {
        str(name) for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
    }


def read(path: str | Path) -> dict[str, pd.DataFrame]:
    """A file that `nsys export --type sqlite` (or `nsys stats`) wrote.

    Returns:
        `kernels`, `memops`, `api`, `overhead`, `markers`, `syncs`, `graphs`, with the columns of
        :class:`dnnsuite.profiler.activity.ActivityInstrument`. Times are nsys' ns, from the beginning of its session.
        Where several processes were traced, numbers that are unique in one (`correlation`) get the number of the
        process times 2**32 added. `attrs["windows"]`: from the first begin to the last end of anything.

    Raises:
        BadFile: no SQLite file, a damaged one, or one without CUDA or NVTX in it.
    """
    path = Path(path)
    if not path.is_file():
        read_bytes(path)  # raises, saying what is there instead
    with _opened(path) as db:
        export = _Export(path, db)
        columns = {
            "kernels": export.kernels(),
            "memops": export.memops(),
            "api": export.api(),
            "overhead": export.overhead(),
            "syncs": export.syncs(),
            "graphs": export.graphs(),
        }
        columns["markers"], columns["marker_data"] = export.markers()
    found = tables_of(columns, export.strings, lambda _, number: export.strings[number])
    _name_overheads(found["overhead"], columns["overhead"]["kind"], export.strings)
    windows = _extent(found)
    for table in found.values():
        table.attrs["windows"] = windows
    return found


def _extent(tables: Mapping[str, pd.DataFrame]) -> list[list[int]]:
    rows = [table for table in tables.values() if len(table)]
    if not rows:
        return []
    return [[min(int(t["t0_ns"].min()) for t in rows), max(int(t["t1_ns"].max()) for t in rows)]]


def _name_overheads(table: pd.DataFrame, kinds: NDArray[Any], strings: Sequence[str]) -> None:
    """nsys has texts where CUPTI has numbers; both are in the order of their begin."""
    import pandas as pd

    table["kind"] = pd.Categorical([strings[code] or "unknown" for code in kinds.tolist()])


class _Export:
    """One export: its tables as columns `[rows]`, with the names that `tables_of` takes."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self._path, self._db, self._tables = path, db, _tables(db)
        if not self._tables & {_KERNEL, _MEMCPY, _MEMSET, _RUNTIME, _DRIVER, _NVTX, _GRAPH}:
            raise BadFile(
                path,
                "no table of CUDA or NVTX; trace with `nsys profile -t cuda,nvtx` and "
                "`nsys export --type sqlite`",
            )
        self.strings: list[str] = [""]
        self._code_of: dict[int, int] = {}
        if "StringIds" in self._tables:
            for number, value in db.execute(f"SELECT {_term('id')}, CAST(value AS TEXT) FROM StringIds"):
                self._code_of[number] = len(self.strings)
                self.strings.append(str(value or ""))
        self._processes: dict[int, int] = {}

    def _has(self, table: str) -> set[str]:
        """The table's columns; none when there is no such table."""
        if table not in self._tables:
            return set()
        return {str(row[1]) for row in self._db.execute(f'PRAGMA table_info("{table}")')}

    def _columns(self, table: str, wanted: Mapping[str, str], where: str = "") -> Columns:
        """Columns of whole numbers; 0 where the schema lacks one, or a row has none. Without start and end, BadFile."""
        there = self._has(table)
        if there and not {"start", "end"} <= there:
            raise BadFile(self._path, f"table {table} has no columns start and end: an unknown schema")
        if not there:
            return {name: np.zeros(0, np.int64) for name in wanted}
        terms = [_term(column) if column in there else "0" for column in wanted.values()]
        cursor = self._db.execute(f'SELECT {", ".join(terms)} FROM "{table}" {where}')
        flat = np.fromiter(chain.from_iterable(cursor), np.int64).reshape(-1, len(wanted))
        return {name: np.ascontiguousarray(flat[:, number]) for number, name in enumerate(wanted)}

    def _codes(self, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
        """Indices into `strings` for numbers of the string table; "" for one that is not in it."""
        distinct, inverse = np.unique(numbers, return_inverse=True)
        codes = [self._code_of.get(number, 0) for number in distinct.tolist()]
        return np.array(codes, np.int32)[inverse] if codes else np.zeros(0, np.int32)

    def _unique(self, columns: Columns, process: str) -> None:
        """Adds the process to correlations, which begin anew in each; takes its column away."""
        pids = columns.pop(process) >> _PID_BITS & _TID_MASK
        for pid in np.unique(pids).tolist():
            self._processes.setdefault(pid, len(self._processes))
        distinct, inverse = np.unique(pids, return_inverse=True)
        order = np.array([self._processes[pid] for pid in distinct.tolist()], np.int64)
        if len(distinct):
            columns["correlation"] = columns["correlation"] + (order[inverse] << 32)

    def kernels(self) -> Columns:
        there = self._has(_KERNEL)
        name = next((n for n in ("demangledName", "shortName", "mangledName") if n in there), "demangledName")
        found = self._columns(_KERNEL, _LAUNCH | {"name": name})
        self._unique(found, "globalPid")
        found["name"] = self._codes(found["name"])
        return {"t0_ns": found.pop("t0_ns"), "t1_ns": found.pop("t1_ns"), "name": found.pop("name")} | found

    def memops(self) -> Columns:
        copies = self._columns(
            _MEMCPY,
            _MEMOP
            | {
                "operation": "copyKind",
                "source_memory": "srcKind",
                "target_memory": "dstKind",
                "source_device": "srcDeviceId",
                "target_device": "dstDeviceId",
            },
        )
        for side in ("source_memory", "target_memory"):
            copies[side] = _memory(copies[side])
        sets = self._columns(_MEMSET, _MEMOP | {"target_memory": "memKind", "target_device": "deviceId"})
        count = len(sets["t0_ns"])
        sets["target_memory"] = _memory(sets["target_memory"])
        if "memKind" not in self._has(_MEMSET):
            sets["target_memory"] = np.full(count, _DEVICE_MEMORY)
        sets["operation"] = np.full(count, _MEMSET_OPERATION)
        sets["source_memory"], sets["source_device"] = (
            np.full(count, _UNKNOWN_MEMORY),
            np.zeros(count, np.int64),
        )
        found = {name: np.concatenate([copies[name], sets[name]]) for name in copies}
        self._unique(found, "globalPid")
        order = (
            "t0_ns", "t1_ns", "operation", "source_memory", "target_memory", "bytes", "device", "context", "stream",
            "correlation", "source_device", "target_device", "graph_id", "graph_node",
        )  # fmt: skip
        return {name: found[name] for name in order}

    def api(self) -> Columns:
        wanted = {
            "t0_ns": "start",
            "t1_ns": "end",
            "domain": "eventClass",
            "callback": "nameId",
            "thread": "globalTid",
            "correlation": "correlationId",
            "return_value": "returnValue",
            "globalTid": "globalTid",
        }
        runtime, driver = self._columns(_RUNTIME, wanted), self._columns(_DRIVER, wanted)
        # CUPTI's numbers: 1 the runtime, 0 the driver.
        runtime["domain"] = (runtime["domain"] == _RUNTIME_CLASS).astype(np.int64)
        driver["domain"] = np.zeros(len(driver["t0_ns"]), np.int64)
        found = {name: np.concatenate([runtime[name], driver[name]]) for name in wanted}
        self._unique(found, "globalTid")
        return found | {"callback": self._codes(found["callback"]), "thread": found["thread"] & _TID_MASK}

    def overhead(self) -> Columns:
        found = self._columns(
            _OVERHEAD,
            {
                "t0_ns": "start",
                "t1_ns": "end",
                "kind": "nameId",
                "thread": "globalTid",
                "correlation": "correlationId",
            },
        )
        order = np.argsort(found["t0_ns"], kind="stable")
        found = {name: values[order] for name, values in found.items()}
        return found | {"kind": self._codes(found["kind"]), "thread": found["thread"] & _TID_MASK}

    def syncs(self) -> Columns:
        found = self._columns(_SYNC, {
            "t0_ns": "start", "t1_ns": "end", "kind": "syncType", "context": "contextId", "stream": "streamId",
            "event": "eventId", "correlation": "correlationId", "globalPid": "globalPid",
        })  # fmt: skip
        self._unique(found, "globalPid")
        return found

    def graphs(self) -> Columns:
        found = self._columns(_GRAPH, _WORK | {"graph_id": "graphId", "globalPid": "globalPid"})
        self._unique(found, "globalPid")
        return found

    def markers(self) -> tuple[Columns, Columns]:
        """NVTX's ranges that ended, and its marks, as CUPTI's records: one of the begin, one of the end."""
        found = self._columns(_NVTX, {
            "t0_ns": "start", "t1_ns": "end", "type": "eventType", "thread": "globalTid", "textId": "textId",
            "domain": "domainId", "category": "category",
        }, "ORDER BY rowid")  # fmt: skip
        names, payloads = self._codes(found["textId"]), np.full(len(found["t0_ns"]), np.nan)
        self._own_texts(names)
        self._payloads(payloads)
        domains = self._domains(found, names)
        is_mark = found["type"] == _MARK
        is_range = np.isin(found["type"], (_PUSH_POP, _START_END)) & (found["t1_ns"] >= found["t0_ns"])
        ids = np.arange(len(is_mark))
        parts = [(is_mark, 1, "t0_ns"), (is_range, 2, "t0_ns"), (is_range, 4, "t1_ns")]

        def joined(values: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([values[mask] for mask, _, _ in parts])

        records = {
            "t_ns": np.concatenate([found[time][mask] for mask, _, time in parts]),
            "event": np.concatenate([np.full(int(mask.sum()), event) for mask, event, _ in parts]),
            "id": joined(ids),
            "thread": joined(found["thread"] & _TID_MASK),
            "name": joined(names),
            "domain": joined(domains),
        }
        return records, {"id": ids, "category": found["category"], "payload": payloads}

    def _own_texts(self, names: NDArray[np.int32]) -> None:
        """Codes for texts that stand in the row itself, where no registered string was used."""
        if "text" not in self._has(_NVTX):
            return
        known: dict[str, int] = {}
        for row, text in enumerate(
            value for (value,) in self._db.execute(f"SELECT text FROM {_NVTX} ORDER BY rowid")
        ):
            if text is not None and not names[row]:
                names[row] = known.setdefault(str(text), len(self.strings))
                if names[row] == len(self.strings):
                    self.strings.append(str(text))

    def _payloads(self, into: NDArray[np.float64]) -> None:
        there = self._has(_NVTX)
        kinds = [
            n
            for n in ("uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue")
            if n in there
        ]
        if not kinds:
            return
        # COALESCE wants two arguments.
        query = f"SELECT CAST(COALESCE({', '.join(kinds)}, NULL) AS REAL) FROM {_NVTX} ORDER BY rowid"
        into[:] = [np.nan if value is None else value for (value,) in self._db.execute(query)]

    def _domains(self, found: Columns, names: NDArray[np.int32]) -> NDArray[np.int32]:
        """The name of each row's domain, which rows of their own give; -1 for the one that has none."""
        created = found["type"] == _DOMAIN
        name_of = dict(zip(found["domain"][created].tolist(), names[created].tolist(), strict=True))
        distinct, inverse = np.unique(found["domain"], return_inverse=True)
        codes = [name_of.get(number, -1) for number in distinct.tolist()]
        return np.array(codes, np.int32)[inverse] if codes else np.zeros(0, np.int32)


def _term(column: str) -> str:
    return f'COALESCE(CAST("{column}" AS INTEGER), 0)'


def _memory(kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """CUPTI's numbers of kinds of memory for nsys', which begin one lower and have a large one for unknown."""
    return np.where((kinds >= 0) & (kinds < 7), kinds + 1, _UNKNOWN_MEMORY)
