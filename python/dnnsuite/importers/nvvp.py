# SPDX-License-Identifier: MIT
"""The SQLite file of nvprof (`-o FILE`) and its visual profiler, as the tables of :mod:`dnnsuite.profiler.activity`.

Its tables are CUPTI's records of the time. Functions are numbers in it, which CUPTI names where it is installed; values
of metrics are bytes of types that only CUPTI knows, and are not read: `nvprof -i FILE --csv` prints them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .._lazy import pandas as pd
from ..profiler.activity.tables import tables_of
from ._extent import timed, with_windows
from ._sqlite import LAUNCH, RESOURCES, WORK, Columns, Database, opened, tables_in
from ._text import BadFile, read_bytes
from .nsys import without_version

_NO_CALL = 2**32 - 1
_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
_KERNELS = ("CONCURRENT_KERNEL", "KERNEL")
_OF_METRICS = ("METRIC", "METRIC_INSTANCE", "EVENT", "EVENT_INSTANCE")
_LAUNCH = (
    LAUNCH
    | {"cluster_x": "", "cluster_y": "", "cluster_z": ""}
    | RESOURCES
    | {"graph_id": "", "graph_node": "", "name": "name"}
)
_COPY = ("t0_ns", "t1_ns", "operation", "source_memory", "target_memory", "bytes", "device", "context", "stream",
         "correlation", "source_device", "target_device", "graph_id", "graph_node")  # fmt: skip
_MEMSET_OPERATION = 255
_MIGRATED = {1: 11, 2: 12, 8: 13}  # CUPTI's counter of unified memory → operation; others count faults
_MANAGED = 5
_BEGINS, _ENDS, _MARKS = 2, 4, 1


def is_nvvp(path: Path) -> bool:
    """Return True if an SQLite file has the tables that nvprof writes."""
    return {"StringTable", "Version"} <= tables_in(path)


def read(path: str | Path) -> dict[str, pd.DataFrame]:
    """Read a file that `nvprof -o FILE` or nvvp wrote.

    Returns:
        The tables of :func:`dnnsuite.importers.nsys.read`. Pages of unified memory that migrated are rows of `memops`.

    Raises:
        BadFile: no SQLite file, a damaged one, or one without a record of CUDA in it.
    """
    path = Path(path)
    if not path.is_file():
        read_bytes(path)  # raises, saying what is there instead
    with opened(path) as db:
        session = _Session(path, db)
        session.read_strings("StringTable", "_id_")
        columns = {
            "kernels": session.kernels(), "memops": session.memops(), "api": session.api(),
            "overhead": session.overhead(), "syncs": session.syncs(),
            "graphs": dict.fromkeys(("t0_ns", "t1_ns", "device", "context", "stream", "correlation", "graph_id"),
                                    np.zeros(0, np.int64)),
        }  # fmt: skip
        columns["markers"], columns["marker_data"] = session.markers()
        if not any(len(next(iter(each.values()))) for each in columns.values()):
            raise BadFile(path, _nothing(session.tables))
    return with_windows(timed(tables_of(columns, session.strings, _function), absolute=True))


def _nothing(tables: set[str]) -> str:
    if tables & {_ACTIVITY + name for name in _OF_METRICS}:
        return "values of metrics or events alone, without times; `nvprof -i FILE --csv` prints them as CSV"
    return "no record of CUDA is in it: nothing was profiled"


def _function(domain: int, number: int) -> str:
    """Return the name of a host call; "" where CUPTI, which has the names, is not installed."""
    from .. import _C
    from ..errors import Error

    try:
        return without_version(_C.cupti_function_name(domain, number))
    except Error:
        return ""


class _Session(Database):
    """One file: its tables as columns `[rows]`, with the names that `tables_of` takes."""

    def kernels(self) -> Columns:
        parts = [self.columns(_ACTIVITY + kind, _LAUNCH) for kind in _KERNELS]
        found = {name: np.concatenate([part[name] for part in parts]) for name in _LAUNCH}
        found["name"] = self.codes(found["name"])
        return {"t0_ns": found.pop("t0_ns"), "t1_ns": found.pop("t1_ns"), "name": found.pop("name")} | found

    def memops(self) -> Columns:
        copies = self._copies("MEMCPY", "deviceId", "deviceId")
        peers = self._copies("MEMCPY2", "srcDeviceId", "dstDeviceId")
        sets = self._filled(
            self.columns(_ACTIVITY + "MEMSET", WORK | {"bytes": "bytes", "target_memory": "memoryKind"})
        )
        sets["operation"][:] = _MEMSET_OPERATION
        parts = [copies, peers, sets, self._migrations()]
        return {name: np.concatenate([part[name] for part in parts]) for name in _COPY}

    def _copies(self, kind: str, source: str, target: str) -> Columns:
        return self._filled(self.columns(_ACTIVITY + kind, WORK | {
            "operation": "copyKind", "source_memory": "srcKind", "target_memory": "dstKind", "bytes": "bytes",
            "source_device": source, "target_device": target,
        }))  # fmt: skip

    def _migrations(self) -> Columns:
        found = self.columns(_ACTIVITY + "UNIFIED_MEMORY_COUNTER", WORK | {
            "counter": "counterKind", "bytes": "value", "source_device": "srcId", "target_device": "dstId",
        })  # fmt: skip
        moved = np.isin(found["counter"], list(_MIGRATED))
        found = self._filled({name: values[moved] for name, values in found.items()})
        found["operation"] = np.array([_MIGRATED[int(kind)] for kind in found["counter"]], np.int64)
        found["device"] = np.where(found["counter"] == 1, found["target_device"], found["source_device"])
        found["source_memory"] = found["target_memory"] = np.full(len(found["counter"]), _MANAGED)
        return found

    @staticmethod
    def _filled(found: Columns) -> Columns:
        count = len(found["t0_ns"])
        return {name: np.zeros(count, np.int64) for name in _COPY} | found

    def api(self) -> Columns:
        wanted = {
            "t0_ns": "start", "t1_ns": "end", "callback": "cbid", "thread": "threadId", "correlation": "correlationId",
            "return_value": "returnValue",
        }  # fmt: skip
        driver, runtime = (self.columns(_ACTIVITY + kind, wanted) for kind in ("DRIVER", "RUNTIME"))
        found = {name: np.concatenate([driver[name], runtime[name]]) for name in wanted}
        found["domain"] = np.repeat([0, 1], [len(driver["t0_ns"]), len(runtime["t0_ns"])])
        calls = found["callback"]  # numbers of 32 bits; of a damaged file any
        found["callback"] = np.where((calls >= 0) & (calls <= _NO_CALL), calls, _NO_CALL)
        return found

    def overhead(self) -> Columns:
        return self.columns(
            _ACTIVITY + "OVERHEAD",
            {"t0_ns": "start", "t1_ns": "end", "kind": "overheadKind", "thread": "", "correlation": ""},
        )

    def syncs(self) -> Columns:
        return self.columns(_ACTIVITY + "SYNCHRONIZATION", {
            "t0_ns": "start", "t1_ns": "end", "kind": "type", "context": "contextId", "stream": "streamId",
            "event": "cudaEventId", "correlation": "correlationId",
        })  # fmt: skip

    def markers(self) -> tuple[Columns, Columns]:
        """NVTX's ranges and marks, as CUPTI's records. A name stands at the begin; id 0 is no string."""
        found = self.columns(
            _ACTIVITY + "MARKER",
            {"t_ns": "timestamp", "flags": "flags", "id": "id", "name": "name", "domain": "domain"},
        )
        flags = found.pop("flags")
        event = np.where(flags & 2, _BEGINS, np.where(flags & 4, _ENDS, _MARKS))
        domain = np.where(found["domain"] > 0, self.codes(found["domain"]), -1)
        records = found | {
            "event": event,
            "thread": np.zeros(len(event), np.int64),
            "name": self.codes(found["name"]),
            "domain": domain.astype(np.int32),
        }
        return records, {
            "id": np.zeros(0, np.int64), "category": np.zeros(0, np.int64), "payload": np.zeros(0, np.float64),
        }  # fmt: skip
