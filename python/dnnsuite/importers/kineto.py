# SPDX-License-Identifier: MIT
"""The JSON trace that torch.profiler writes (Kineto's), as the tables of :mod:`dnnsuite.profiler.activity`.

Times are microseconds with a fraction in the file, so that ns are exact only where it counts from a
`baseTimeNanoseconds` of its own; older files count from 1970, which leaves a double a quarter of a microsecond.
Events are read one at a time, so that a trace of gigabytes takes the memory of its columns.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..profiler.activity.tables import tables_of
from ..profiler.instrument import define
from ..profiler.operators import operator_table
from ._events import TraceFile
from ._extent import with_windows
from ._text import BadFile
from .nsys import without_version

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read"]

_KIND_OF = {
    "kernel": "kernels",
    **dict.fromkeys(("gpu_memcpy", "gpu_memset", "memcpy", "memset"), "memops"),
    **dict.fromkeys(
        ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "hip_driver", "xpu_runtime"), "api"
    ),
    **dict.fromkeys(("user_annotation", "python_annotation"), "markers"),
    **dict.fromkeys(("cpu_op", "operator"), "ops"),
    "overhead": "overhead",
}
_STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)$")
_OPERATIONS = {"HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7, "DtoD": 8, "HtoH": 9,
               "PtoP": 10}  # fmt: skip
_MEMORIES = {"Pageable": 1, "Pinned": 2, "Device": 3, "Array": 4, "Managed": 5}
_MEMSET, _DEVICE = 255, 3
_LARGEST = 2**63 - 1
_AXES = [f"{name}_{letter}" for name in ("grid", "block", "cluster") for letter in "xyz"]
_WORK = ("device", "context", "stream", "correlation")
_COLUMNS = {
    "kernels": ("t0_ns", "t1_ns", "name", *_WORK, *_AXES, "registers_per_thread", "static_shared_bytes",
                "dynamic_shared_bytes", "local_bytes_per_thread", "graph_id", "graph_node"),
    "memops": ("t0_ns", "t1_ns", "operation", "source_memory", "target_memory", "bytes", *_WORK, "source_device",
               "target_device", "graph_id", "graph_node"),
    "api": ("t0_ns", "t1_ns", "domain", "callback", "thread", "correlation", "return_value"),
    "overhead": ("t0_ns", "t1_ns", "kind", "thread", "correlation"),
    "markers": ("t0_ns", "t1_ns", "name", "thread"),
    "ops": ("t0_ns", "t1_ns", "name", "thread"),
    "steps": ("t0_ns", "t1_ns", "step", "thread"),
    "syncs": ("t0_ns", "t1_ns", "kind", "context", "stream", "event", "correlation"),
    "graphs": ("t0_ns", "t1_ns", "device", "context", "stream", "correlation", "graph_id"),
}  # fmt: skip
_STEP_MEANINGS = {
    "t0_ns": "begin, as the trace counts",
    "t1_ns": "end",
    "step": "the number that torch.profiler gave it",
}

Event = Mapping[str, Any]


def read(path: str | Path) -> dict[str, pd.DataFrame]:
    """A file of `torch.profiler`'s `export_chrome_trace`, packed by gzip or not.

    Returns:
        The tables of :func:`dnnsuite.importers.nsys.read`; `markers` are `record_function`'s ranges. Where there are
        operators of the CPU `ops`, where torch.profiler's own steps were recorded `steps`, which are the windows then.
        `attrs["about"]`: rank, number of ranks and base of the times, where the file names them.

    Raises:
        BadFile: no JSON, or JSON that is no trace, or an event whose times or numbers are none.
    """
    path = Path(path)
    trace, found = TraceFile(path), _Found()
    any_event = False
    try:
        for event in trace:
            if isinstance(event, dict) and event.get("ph") == "X":
                any_event = True
                found.add(event)
    except (TypeError, ValueError, OverflowError, AttributeError, KeyError) as error:
        raise BadFile(path, f"an event of the trace is damaged: {error}") from error
    if not any_event:
        raise BadFile(path, "no event with a duration: nothing was recorded")
    tables = found.tables()
    for table in tables.values():
        table.attrs["about"] = _about(trace.about)
    return tables


def _about(values: Mapping[str, Any]) -> dict[str, int]:
    distributed = values.get("distributedInfo")
    info = distributed if isinstance(distributed, dict) else {}
    named = {
        "rank": info.get("rank"),
        "ranks": info.get("world_size"),
        "base_ns": values.get("baseTimeNanoseconds"),
    }
    return {name: value for name, value in named.items() if isinstance(value, int)}


class _Found:
    """The columns of a trace, filled event by event."""

    def __init__(self) -> None:
        self._rows = {kind: array("q") for kind in _COLUMNS}
        self._strings: list[str] = []
        self._codes: dict[str, int] = {}
        self._kinds: dict[str, str | None] = {}

    def add(self, event: Event) -> None:
        category = str(event.get("cat", ""))
        if category not in self._kinds:
            self._kinds[category] = _KIND_OF.get(category.lower())
        kind = self._kinds[category]
        if kind is None:
            return
        t0_ns = _ns(event.get("ts"))
        t1_ns = t0_ns + max(_ns(event.get("dur", 0)), 0)
        name = str(event.get("name", ""))
        if kind in ("markers", "ops") and (step := _STEP.match(name)):
            self._rows["steps"].extend((t0_ns, t1_ns, _whole(step[1]), _whole(event.get("tid"))))
            if kind == "ops":
                return
        self._rows[kind].extend((t0_ns, t1_ns, *_READERS[kind](event, self._code(name))))

    def _code(self, text: str) -> int:
        code = self._codes.setdefault(text, len(self._strings))
        if code == len(self._strings):
            self._strings.append(text)
        return code

    def tables(self) -> dict[str, pd.DataFrame]:
        columns: dict[str, dict[str, NDArray[Any]]] = {
            kind: self._columns(kind) for kind in _COLUMNS if kind not in ("ops", "steps")
        }
        columns["markers"], columns["marker_data"] = _records(columns["markers"])
        found = tables_of(columns, self._strings, lambda _, number: without_version(self._strings[number]))
        ops, steps = self._columns("ops"), self._columns("steps")
        if len(ops["t0_ns"]):
            found["ops"] = operator_table(ops["t0_ns"], ops["t1_ns"], self._texts(ops["name"]), ops["thread"])
        if len(steps["t0_ns"]):
            found["steps"] = _steps(steps)
        recorded = found.get("steps")
        times = () if recorded is None else zip(recorded["t0_ns"], recorded["t1_ns"], strict=True)
        return with_windows(found, [*times])

    def _columns(self, kind: str) -> dict[str, NDArray[Any]]:
        names = _COLUMNS[kind]
        flat = np.frombuffer(self._rows[kind], np.int64) if self._rows[kind] else np.zeros(0, np.int64)
        rows = flat.reshape(-1, len(names))
        return {name: np.ascontiguousarray(rows[:, number]) for number, name in enumerate(names)}

    def _texts(self, codes: NDArray[np.int64]) -> pd.Series:
        import pandas as pd

        return pd.Series(pd.Categorical.from_codes(codes, pd.Index(self._strings)))


def _steps(columns: Mapping[str, NDArray[Any]]) -> pd.DataFrame:
    """The steps of the thread that has most of them, disjoint."""
    import pandas as pd

    table = pd.DataFrame({**columns})
    table = table[table["thread"] == table["thread"].mode()[0]].drop(columns="thread")
    table = table.sort_values("t0_ns", ignore_index=True)
    apart = table["t0_ns"] >= table["t1_ns"].shift(fill_value=table["t0_ns"].min())
    return define(table[apart].reset_index(drop=True), _STEP_MEANINGS)


def _ns(value: Any) -> int:
    found = round(float(value) * 1000)
    if abs(found) > _LARGEST // 2:
        raise ValueError(f"time {value!r} us")
    return found


def _whole(value: Any) -> int:
    """A whole number; 0 for what is none, as the name of a thread."""
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return found if abs(found) <= _LARGEST else 0


def _args(event: Event) -> Mapping[str, Any]:
    args = event.get("args") or {}
    if not isinstance(args, dict):
        raise TypeError(f"args {args!r}")
    return args


def _numbers(args: Mapping[str, Any], names: Sequence[str]) -> tuple[int, ...]:
    return tuple(_whole(args.get(name)) for name in names)


def _kernel(event: Event, name: int) -> tuple[int, ...]:
    args = _args(event)
    axes = [side for each in ("grid", "block", "cluster") for side in _axes(args.get(each))]
    shared = _numbers(args, ("registers per thread", "shared memory"))
    return (
        name,
        *_numbers(args, _WORK),
        *axes,
        *shared,
        0,
        0,
        *_numbers(args, ("graph id", "graph node id")),
    )


def _axes(sides: Any) -> tuple[int, int, int]:
    known = sides if isinstance(sides, list) else []
    x, y, z = (_whole(known[number]) if len(known) > number else 0 for number in range(3))
    return x, y, z


def _memop(event: Event, _: int) -> tuple[int, ...]:
    args, text = _args(event), str(event.get("name", ""))
    is_set = "memset" in str(event["cat"]).lower()
    operation = (
        _MEMSET if is_set else next((number for word, number in _OPERATIONS.items() if word in text), 0)
    )
    device = _whole(args.get("device"))
    sides = (_memory(text, side, is_set) for side in (0, 1))
    graph = _numbers(args, ("graph id", "graph node id"))
    return (operation, *sides, _whole(args.get("bytes")), *_numbers(args, _WORK), device, device, *graph)


def _memory(text: str, side: int, is_set: bool) -> int:
    """Kind of memory that a copy reads (0) or writes (1), from names as `Memcpy HtoD (Pinned -> Device)`."""
    inside = text.partition("(")[2].rstrip(")").split(" -> ")
    if len(inside) < 2:
        return _DEVICE if side and is_set else 0
    return _MEMORIES.get(inside[side].strip(), 0)


def _call(event: Event, name: int) -> tuple[int, ...]:
    args = _args(event)
    is_runtime = "runtime" in str(event["cat"]).lower()
    return (int(is_runtime), name, _whole(event.get("tid")), *_numbers(args, ("correlation", "return value")))


def _overhead(event: Event, _: int) -> tuple[int, ...]:
    return 0, _whole(event.get("tid")), _whole(_args(event).get("correlation"))


def _named(event: Event, name: int) -> tuple[int, ...]:
    return name, _whole(event.get("tid"))


_READERS: dict[str, Callable[[Event, int], tuple[int, ...]]] = {
    "kernels": _kernel, "memops": _memop, "api": _call, "overhead": _overhead, "markers": _named, "ops": _named,
}  # fmt: skip


def _records(ranges: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ranges as CUPTI's records: one of the begin, one of the end."""
    count = len(ranges["t0_ns"])
    ids = np.arange(count)
    return {
        "t_ns": np.concatenate([ranges["t0_ns"], ranges["t1_ns"]]),
        "event": np.repeat([2, 4], count),
        "id": np.tile(ids, 2),
        "thread": np.tile(ranges["thread"], 2),
        "name": np.tile(ranges["name"], 2),
        "domain": np.full(2 * count, -1),
    }, {"id": ids, "category": np.zeros(count, np.int64), "payload": np.full(count, np.nan)}
