# SPDX-License-Identifier: MIT
"""The JSON trace that torch.profiler writes (Kineto's), as the tables of :mod:`dnnsuite.profiler.activity`.

Times are microseconds with a fraction in the file, so that ns are exact only where it counts from a
`baseTimeNanoseconds` of its own; older files count from 1970, which leaves a double a quarter of a microsecond.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..profiler.activity.tables import tables_of
from ._text import BadFile, read_bytes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read"]

_KERNELS, _MEMOPS = {"kernel"}, {"gpu_memcpy", "gpu_memset"}
_API = {"cuda_runtime": 1, "cuda_driver": 0}
_MARKERS = {"user_annotation", "python_annotation"}
_OPERATIONS = {"HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7, "DtoD": 8, "HtoH": 9,
               "PtoP": 10}  # fmt: skip
_MEMORIES = {"Pageable": 1, "Pinned": 2, "Device": 3, "Array": 4, "Managed": 5}
_MEMSET, _DEVICE = 255, 3
_NONE = 0
_LARGEST = 2**63 - 1

Event = Mapping[str, Any]
Reader = Callable[[Event], float]


def read(path: str | Path) -> dict[str, pd.DataFrame]:
    """A file of `torch.profiler`'s `export_chrome_trace`, packed by gzip or not.

    Returns:
        The tables of :func:`dnnsuite.importers.nsys.read`; `markers` are `record_function`'s ranges.

    Raises:
        BadFile: no JSON, or JSON that is no trace, or an event whose times or numbers are none.
    """
    path = Path(path)
    text = read_bytes(path).decode("utf-8", errors="replace")
    try:
        trace = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        raise BadFile(path, f"{getattr(error, 'msg', error)}: no JSON, or the file is cut", line) from error
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        raise BadFile(path, "no list traceEvents: not a trace of torch.profiler")
    done = [event for event in events if isinstance(event, dict) and event.get("ph") == "X"]
    if not done:
        raise BadFile(path, "no event with a duration: nothing was recorded")
    try:
        return _tables(done)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise BadFile(path, f"an event of the trace is damaged: {error}") from error


def _tables(events: Sequence[Event]) -> dict[str, pd.DataFrame]:
    strings: list[str] = []
    codes: dict[str, int] = {}

    def code(text: str) -> int:
        found = codes.setdefault(text, len(strings))
        if found == len(strings):
            strings.append(text)
        return found

    kinds: dict[str, list[Event]] = {"kernels": [], "memops": [], "api": [], "overhead": [], "markers": []}
    for event in events:
        kind = _kind(str(event.get("cat", "")).lower())
        if kind:
            kinds[kind].append(event)
    named: Reader = lambda event: code(str(event.get("name", "")))  # noqa: E731
    thread: Reader = lambda event: _whole(event.get("tid"))  # noqa: E731
    columns: dict[str, dict[str, Any]] = {
        "kernels": _columns(kinds["kernels"], {"name": named, **_work(), **_shape()}),
        "memops": _columns(kinds["memops"], {
            "operation": _operation, "source_memory": lambda e: _memory(e, 0), "target_memory": lambda e: _memory(e, 1),
            "bytes": _arg("bytes"), **_work(), "source_device": _arg("device"), "target_device": _arg("device"),
            "graph_id": _arg("graph id"), "graph_node": _arg("graph node id"),
        }),
        "api": _columns(kinds["api"], {
            "domain": lambda e: _API[str(e["cat"]).lower()], "callback": named, "thread": thread,
            "correlation": _arg("correlation"), "return_value": _arg("return value"),
        }),
        "overhead": _columns(kinds["overhead"], {
            "kind": lambda e: _NONE, "thread": thread, "correlation": _arg("correlation"),
        }),
        "syncs": _columns([], dict.fromkeys(("kind", "context", "stream", "event", "correlation"), thread)),
        "graphs": _columns([], dict.fromkeys(("device", "context", "stream", "correlation", "graph_id"), thread)),
        "markers": {}, "marker_data": {},
    }  # fmt: skip
    ranges = _columns(kinds["markers"], {"name": named, "thread": thread})
    columns["markers"], columns["marker_data"] = _records(ranges)
    found = tables_of(columns, strings, lambda _, number: strings[number])
    times = [table for table in found.values() if len(table)]
    for table in found.values():
        table.attrs["windows"] = (
            [[min(int(t["t0_ns"].min()) for t in times), max(int(t["t1_ns"].max()) for t in times)]]
            if times
            else []
        )
    return found


def _kind(category: str) -> str | None:
    if category in _KERNELS:
        return "kernels"
    if category in _MEMOPS:
        return "memops"
    if category in _API:
        return "api"
    if category in _MARKERS:
        return "markers"
    return "overhead" if category == "overhead" else None


def _columns(events: Sequence[Event], readers: Mapping[str, Reader]) -> dict[str, Any]:
    times = np.array(
        [(_ns(event.get("ts")), _ns(event.get("dur", 0))) for event in events], np.int64
    ).reshape(-1, 2)
    columns: dict[str, Any] = {"t0_ns": times[:, 0], "t1_ns": times[:, 0] + np.maximum(times[:, 1], 0)}
    return columns | {
        name: np.array([reader(event) for event in events], np.int64) for name, reader in readers.items()
    }


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


def _arg(*names: str) -> Reader:
    def read(event: Event) -> float:
        args = event.get("args") or {}
        return next((_whole(args[name]) for name in names if name in args), 0)

    return read


def _work() -> dict[str, Reader]:
    return {name: _arg(name) for name in ("device", "context", "stream", "correlation")}


def _shape() -> dict[str, Reader]:
    def axis(name: str, number: int) -> Reader:
        def read(event: Event) -> float:
            sides = (event.get("args") or {}).get(name)
            return _whole(sides[number]) if isinstance(sides, list) and len(sides) > number else 0

        return read

    axes = {
        f"{name}_{letter}": axis(name, number)
        for name in ("grid", "block", "cluster")
        for number, letter in enumerate("xyz")
    }
    return axes | {
        "registers_per_thread": _arg("registers per thread"),
        "static_shared_bytes": _arg("shared memory"),
        "dynamic_shared_bytes": lambda event: _NONE,
        "local_bytes_per_thread": lambda event: _NONE,
        "graph_id": _arg("graph id"),
        "graph_node": _arg("graph node id"),
    }


def _operation(event: Event) -> float:
    if str(event["cat"]).lower() == "gpu_memset":
        return _MEMSET
    return next((number for word, number in _OPERATIONS.items() if word in str(event.get("name"))), 0)


def _memory(event: Event, side: int) -> float:
    """Kind of memory that a copy reads (0) or writes (1), from names as `Memcpy HtoD (Pinned -> Device)`."""
    inside = str(event.get("name", "")).partition("(")[2].rstrip(")").split(" -> ")
    if len(inside) < 2:
        return _DEVICE if side and str(event["cat"]).lower() == "gpu_memset" else 0
    return _MEMORIES.get(inside[side].strip(), 0)


def _records(ranges: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
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
