# SPDX-License-Identifier: MIT
"""The SQLite file that `nsys export --type sqlite` writes, as the tables of :mod:`dnnsuite.profiler.activity`.

Schemas differ from version to version: tables are written only when they have rows, columns come and go, and texts are
texts or numbers of a string table. What a version does not have is 0, or an empty table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from sqlite3 import Connection

import numpy as np
from numpy.typing import NDArray

from .._lazy import pandas as pd
from ..profiler.activity.tables import MEMSET, tables_of
from ._extent import timed, with_windows
from ._sqlite import LAUNCH, RESOURCES, WORK, Columns, Database, joined, mapped, opened, tables_in
from ._text import BadFile

_KERNEL, _MEMCPY, _MEMSET, _RUNTIME, _DRIVER, _SYNC, _GRAPH = (
    f"CUPTI_ACTIVITY_KIND_{kind}"
    for kind in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "DRIVER", "SYNCHRONIZATION", "GRAPH_TRACE")
)
_NVTX, _OVERHEAD = "NVTX_EVENTS", "PROFILER_OVERHEAD"
_LAUNCH = (
    LAUNCH
    | {"cluster_x": "clusterX", "cluster_y": "clusterY", "cluster_z": "clusterZ"}
    | RESOURCES
    | {"graph_id": "graphId", "graph_node": "graphNodeId", "process": "globalPid"}
)
_MEMOP = WORK | {"bytes": "bytes", "graph_id": "graphId", "graph_node": "graphNodeId", "process": "globalPid"}
_MARK, _PUSH_POP, _START_END, _DOMAIN = 34, 59, 60, 75
_RUNTIME_CLASS = 0  # eventClass: 0 the runtime, 1 the driver
_DEVICE_MEMORY, _UNKNOWN_MEMORY = 3, 0
_INTERFACE = re.compile(r"_v\d{4,5}$")
_PID_BITS, _TID_MASK = 24, (1 << 24) - 1


def is_nsys(path: Path) -> bool:
    """Return True if an SQLite file has tables that only nsys writes; nvvp's have CUPTI's names, too."""
    there = tables_in(path)
    return bool(there & {"StringIds", _NVTX, "TARGET_INFO_SYSTEM_ENV", "META_DATA_EXPORT"}) or (
        bool(there & {_KERNEL, _RUNTIME}) and "StringTable" not in there
    )


def read(path: str | Path) -> dict[str, pd.DataFrame]:
    """Read a file that `nsys export --type sqlite` (or `nsys stats`) wrote.

    Returns:
        `kernels`, `memops`, `api`, `overhead`, `markers`, `syncs`, `graphs`, with the columns of
        :class:`dnnsuite.profiler.activity.ActivityInstrument`. Times are nsys' ns, from the beginning of its session.
        Where several processes were traced, numbers that are unique in one (`correlation`) get the number of the
        process times 2**32 added. `attrs["windows"]`: from the first begin to the last end of anything.

    Raises:
        BadFile: no SQLite file, a damaged one, or one without CUDA or NVTX in it.
    """
    path = Path(path)
    with opened(path) as db:
        export = _Export(path, db)
        columns = {
            "kernels": export.kernels(), "memops": export.memops(), "api": export.api(),
            "overhead": export.overhead(), "syncs": export.syncs(), "graphs": export.graphs(),
        }  # fmt: skip
        columns["markers"], columns["marker_data"] = export.markers()
    found = tables_of(columns, export.strings, lambda _, number: without_version(export.strings[number]))
    # nsys has texts where CUPTI has numbers; both are in the order of their begin.
    kinds = [export.strings[code] or "unknown" for code in columns["overhead"]["kind"].tolist()]
    found["overhead"]["kind"] = pd.Categorical(kinds)
    return with_windows(timed(found))


def without_version(function: str) -> str:
    """Return the name of a CUDA function without the interface's version that CUPTI appends.

    >>> without_version("cudaLaunchKernel_v7000"), without_version("cuMemcpyHtoD_v2")
    ('cudaLaunchKernel', 'cuMemcpyHtoD_v2')
    """
    return _INTERFACE.sub("", function)


class _Export(Database):
    """One export: its tables as columns `[rows]`, with the names that `tables_of` takes."""

    def __init__(self, path: Path, db: Connection) -> None:
        super().__init__(path, db)
        if not self.tables & {_KERNEL, _MEMCPY, _MEMSET, _RUNTIME, _DRIVER, _NVTX, _GRAPH}:
            raise BadFile(
                path, "no table of CUDA or NVTX; trace with `nsys profile -t cuda,nvtx` and `nsys export --type sqlite`"
            )
        self.read_strings("StringIds", "id")
        self._processes: dict[int, int] = {}

    def columns(self, table: str, wanted: Mapping[str, str], where: str = "") -> Columns:
        """Add the column `process`, where there is one, to correlations, which are unique per process only."""
        found = super().columns(table, wanted, where)
        if "process" in found:
            pids = found.pop("process") >> _PID_BITS & _TID_MASK
            for pid in np.unique(pids).tolist():
                self._processes.setdefault(pid, len(self._processes))
            found["correlation"] += mapped(pids, self._processes, 0) << 32
        return found

    def kernels(self) -> Columns:
        there = self.has(_KERNEL)
        name = next((n for n in ("demangledName", "shortName", "mangledName") if n in there), "demangledName")
        found = self.columns(_KERNEL, _LAUNCH | {"name": name})
        return found | {"name": self.codes(found["name"])}

    def memops(self) -> Columns:
        copies = self.columns(_MEMCPY, _MEMOP | {
            "operation": "copyKind", "source_memory": "srcKind", "target_memory": "dstKind",
            "source_device": "srcDeviceId", "target_device": "dstDeviceId",
        })  # fmt: skip
        for side in ("source_memory", "target_memory"):
            copies[side] = _memory(copies[side])
        sets = self.columns(_MEMSET, _MEMOP | {"target_memory": "memKind", "target_device": "deviceId"})
        count = len(sets["t0_ns"])
        sets["target_memory"] = _memory(sets["target_memory"])
        if "memKind" not in self.has(_MEMSET):
            sets["target_memory"] = np.full(count, _DEVICE_MEMORY)
        sets["operation"] = np.full(count, MEMSET)
        return joined([copies, sets])

    def api(self) -> Columns:
        wanted = {
            "t0_ns": "start", "t1_ns": "end", "domain": "eventClass", "callback": "nameId", "thread": "globalTid",
            "correlation": "correlationId", "return_value": "returnValue", "process": "globalTid",
        }  # fmt: skip
        runtime, driver = self.columns(_RUNTIME, wanted), self.columns(_DRIVER, wanted)
        # CUPTI's numbers: 1 the runtime, 0 the driver.
        runtime["domain"] = (runtime["domain"] == _RUNTIME_CLASS).astype(np.int64)
        driver["domain"] = np.zeros(len(driver["t0_ns"]), np.int64)
        found = joined([runtime, driver])
        return found | {"callback": self.codes(found["callback"]), "thread": found["thread"] & _TID_MASK}

    def overhead(self) -> Columns:
        found = self.columns(
            _OVERHEAD,
            {"t0_ns": "start", "t1_ns": "end", "kind": "nameId", "thread": "globalTid", "correlation": "correlationId"},
        )
        order = np.argsort(found["t0_ns"], kind="stable")
        found = {name: values[order] for name, values in found.items()}
        return found | {"kind": self.codes(found["kind"]), "thread": found["thread"] & _TID_MASK}

    def syncs(self) -> Columns:
        return self.columns(_SYNC, {
            "t0_ns": "start", "t1_ns": "end", "kind": "syncType", "context": "contextId", "stream": "streamId",
            "event": "eventId", "correlation": "correlationId", "process": "globalPid",
        })  # fmt: skip

    def graphs(self) -> Columns:
        return self.columns(_GRAPH, WORK | {"graph_id": "graphId", "process": "globalPid"})

    def markers(self) -> tuple[Columns, Columns]:
        """NVTX's ranges that ended, and its marks, as CUPTI's records: one of the begin, one of the end."""
        found = self.columns(_NVTX, {
            "t0_ns": "start", "t1_ns": "end", "type": "eventType", "thread": "globalTid", "textId": "textId",
            "domain": "domainId", "category": "category",
        }, "ORDER BY rowid")  # fmt: skip
        names, payloads = self.codes(found["textId"]), np.full(len(found["t0_ns"]), np.nan)
        self._own_texts(names)
        self._payloads(payloads)
        domains = self._domains(found, names)
        is_mark = found["type"] == _MARK
        is_range = np.isin(found["type"], (_PUSH_POP, _START_END)) & (found["t1_ns"] >= found["t0_ns"])
        ids = np.arange(len(is_mark))
        rows = {"id": ids, "thread": found["thread"] & _TID_MASK, "name": names, "domain": domains}
        parts = [
            {name: values[mask] for name, values in (rows | {"t_ns": found[time], "event": ids * 0 + event}).items()}
            for mask, event, time in ((is_mark, 1, "t0_ns"), (is_range, 2, "t0_ns"), (is_range, 4, "t1_ns"))
        ]
        records = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return records, {"id": ids, "category": found["category"], "payload": payloads}

    def _own_texts(self, names: NDArray[np.int32]) -> None:
        """Codes for texts that stand in the row itself, where no registered string was used."""
        if "text" not in self.has(_NVTX):
            return
        known: dict[str, int] = {}
        for row, text in enumerate(value for (value,) in self.db.execute(f"SELECT text FROM {_NVTX} ORDER BY rowid")):
            if text is not None and not names[row]:
                names[row] = known.setdefault(str(text), len(self.strings))
                if names[row] == len(self.strings):
                    self.strings.append(str(text))

    def _payloads(self, into: NDArray[np.float64]) -> None:
        there = self.has(_NVTX)
        every = ("uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue")
        kinds = [name for name in every if name in there]
        if not kinds:
            return
        # COALESCE wants two arguments.
        query = f"SELECT CAST(COALESCE({', '.join(kinds)}, NULL) AS REAL) FROM {_NVTX} ORDER BY rowid"
        into[:] = [np.nan if value is None else value for (value,) in self.db.execute(query)]

    def _domains(self, found: Columns, names: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the name of each row's domain, which rows of their own give; -1 for the one that has none."""
        created = found["type"] == _DOMAIN
        name_of = dict(zip(found["domain"][created].tolist(), names[created].tolist(), strict=True))
        return mapped(found["domain"], name_of, -1).astype(np.int32)


def _memory(kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """CUPTI's numbers of kinds of memory for nsys', which begin one lower and have a large one for unknown."""
    return np.where((kinds >= 0) & (kinds < 7), kinds + 1, _UNKNOWN_MEMORY)
