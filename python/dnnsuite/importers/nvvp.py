# SPDX-License-Identifier: MIT
"""The SQLite file of nvprof (`-o FILE`) and its visual profiler, as the tables of :mod:`dnnsuite.profiler.activity`.

Its tables are CUPTI's records of the time. Functions are numbers in it, which CUPTI names where it is installed; values
of metrics are bytes of types that only CUPTI knows, and are not read: `nvprof -i FILE --csv` prints them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .._lazy import pandas as pd
from ..profiler.activity.tables import MEMSET, tables_of
from ._extent import timed, with_windows
from ._sqlite import LAUNCH, RESOURCES, WORK, Columns, Database, joined, opened, tables_in
from ._text import BadFile
from .nsys import without_version

_NO_CALL = 2**32 - 1
_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
_KERNELS = ("CONCURRENT_KERNEL", "KERNEL")
_OF_METRICS = ("METRIC", "METRIC_INSTANCE", "EVENT", "EVENT_INSTANCE")
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
    with opened(path) as db:
        session = _Session(path, db)
        session.read_strings("StringTable", "_id_")
        columns = {
            "kernels": session.kernels(), "memops": session.memops(), "api": session.api(),
            "overhead": session.overhead(), "syncs": session.syncs(),
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
        found = joined([self.columns(_ACTIVITY + kind, LAUNCH | RESOURCES | {"name": "name"}) for kind in _KERNELS])
        return found | {"name": self.codes(found["name"])}

    def memops(self) -> Columns:
        copies = self._copies("MEMCPY", "deviceId", "deviceId")
        peers = self._copies("MEMCPY2", "srcDeviceId", "dstDeviceId")
        sets = self.columns(_ACTIVITY + "MEMSET", WORK | {"bytes": "bytes", "target_memory": "memoryKind"})
        sets["operation"] = np.full(len(sets["t0_ns"]), MEMSET)
        return joined([copies, peers, sets, self._migrations()])

    def _copies(self, kind: str, source: str, target: str) -> Columns:
        return self.columns(_ACTIVITY + kind, WORK | {
            "operation": "copyKind", "source_memory": "srcKind", "target_memory": "dstKind", "bytes": "bytes",
            "source_device": source, "target_device": target,
        })  # fmt: skip

    def _migrations(self) -> Columns:
        found = self.columns(_ACTIVITY + "UNIFIED_MEMORY_COUNTER", WORK | {
            "counter": "counterKind", "bytes": "value", "source_device": "srcId", "target_device": "dstId",
        })  # fmt: skip
        moved = np.isin(found["counter"], list(_MIGRATED))
        found = {name: values[moved] for name, values in found.items()}
        found["operation"] = np.array([_MIGRATED[int(kind)] for kind in found["counter"]], np.int64)
        found["device"] = np.where(found.pop("counter") == 1, found["target_device"], found["source_device"])
        return found | dict.fromkeys(("source_memory", "target_memory"), np.full(len(found["device"]), _MANAGED))

    def api(self) -> Columns:
        wanted = {
            "t0_ns": "start", "t1_ns": "end", "callback": "cbid", "thread": "threadId", "correlation": "correlationId",
            "return_value": "returnValue",
        }  # fmt: skip
        driver, runtime = (self.columns(_ACTIVITY + kind, wanted) for kind in ("DRIVER", "RUNTIME"))
        runtime["domain"] = np.ones(len(runtime["t0_ns"]), np.int64)
        found = joined([driver, runtime])
        calls = found["callback"]  # numbers of 32 bits; of a damaged file any
        found["callback"] = np.where((calls >= 0) & (calls <= _NO_CALL), calls, _NO_CALL)
        return found

    def overhead(self) -> Columns:
        return self.columns(_ACTIVITY + "OVERHEAD", {"t0_ns": "start", "t1_ns": "end", "kind": "overheadKind"})

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
