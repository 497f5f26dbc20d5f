# SPDX-License-Identifier: MIT
"""The JSON trace that torch.profiler writes (Kineto's), as the tables of :mod:`dnnsuite.profiler.activity`.

Times are microseconds in the file, whole ones since 1970 in older files, decimals in newer ones: both are read exactly.
Events are read one at a time, so that a trace takes the memory of its columns; less in
:mod:`dnnsuite.importers.large`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lazy import pandas as pd
from ..profiler.activity.tables import tables_of
from ..profiler.instrument import define
from ..profiler.operators import operator_table
from ._events import TraceFile
from ._extent import with_windows
from ._text import BadFile
from ._trace_rows import TraceRows
from .nsys import without_version

_FEW = 5  # categories that a message names
_STEP_MEANINGS = {
    "t0_ns": "begin, as the trace counts",
    "t1_ns": "end",
    "step": "the number that torch.profiler gave it",
}


def read(path: str | Path) -> dict[str, pd.DataFrame]:
    """Read a file of `torch.profiler`'s `export_chrome_trace`, packed by gzip or not.

    Returns:
        The tables of :func:`dnnsuite.importers.nsys.read`; `markers` are `record_function`'s ranges. Where there are
        operators of the CPU `ops`, where torch.profiler's own steps were recorded `steps`, which are the windows then.
        `attrs["about"]`: rank, number of ranks and base of the times, where the file names them.

    Raises:
        BadFile: no JSON, or JSON that is no trace, or an event whose times or numbers are none.
    """
    rows = TraceRows()
    about = collect(Path(path), rows)
    columns = rows.columns()
    tables = tables_of_trace(columns, rows.strings)
    if len(columns["steps"]["t0_ns"]):
        tables["steps"] = steps_table(columns["steps"])
    recorded = tables.get("steps")
    times = () if recorded is None else zip(recorded["t0_ns"], recorded["t1_ns"], strict=True)
    for name, table in with_windows(tables, [*times]).items():
        table.attrs["about"] = about
        table.attrs["untimed"] = rows.untimed[name]
    return tables


def collect(path: Path, into: TraceRows) -> dict[str, int]:
    """Read a trace's events into rows; return rank, number of ranks and base of the times, if the file has them.

    Raises:
        BadFile: see :func:`read`.
    """
    trace = TraceFile(path)
    any_event = False
    try:
        for event in trace:
            if isinstance(event, dict) and event.get("ph") == "X":
                any_event = True
                into.add(event)
    except (TypeError, ValueError, OverflowError, AttributeError, KeyError) as error:
        raise BadFile(path, f"an event of the trace is damaged: {error}") from error
    if not any_event:
        raise BadFile(path, "no event with a duration: nothing was recorded")
    if foreign := into.foreign:
        named = ", ".join(foreign[:_FEW]) if any(foreign) else "none"
        raise BadFile(
            path, f"a trace of another program: torch.profiler writes other categories of events than its ({named})"
        )
    return _about(trace.about)


def _about(values: Mapping[str, Any]) -> dict[str, int]:
    distributed = values.get("distributedInfo")
    info = distributed if isinstance(distributed, dict) else {}
    named = {"rank": info.get("rank"), "ranks": info.get("world_size"), "base_ns": values.get("baseTimeNanoseconds")}
    return {name: value for name, value in named.items() if isinstance(value, int)}


def tables_of_trace(
    columns: Mapping[str, Mapping[str, NDArray[Any]]], strings: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Make the tables of a trace's columns by kind, without windows and steps; `ops` where there are any."""
    activity: dict[str, Mapping[str, NDArray[Any]]] = {
        kind: each for kind, each in columns.items() if kind not in ("ops", "steps")
    }
    activity["markers"], activity["marker_data"] = _records(activity["markers"])
    found = tables_of(activity, strings, lambda _, number: without_version(strings[number]))
    ops = columns["ops"]
    if len(ops["t0_ns"]):
        found["ops"] = operator_table(ops["t0_ns"], ops["t1_ns"], _texts(ops["name"], strings), ops["thread"])
    return found


def _texts(codes: NDArray[np.int64], strings: Sequence[str]) -> pd.Series:
    return pd.Series(pd.Categorical.from_codes(codes, pd.Index(strings)))


def steps_table(columns: Mapping[str, NDArray[Any]]) -> pd.DataFrame:
    """Make the table of the steps, disjoint: those of the thread that has most of them."""
    table = pd.DataFrame({**columns})
    table = table[table["thread"] == table["thread"].mode()[0]].drop(columns="thread")
    table = table.sort_values("t0_ns", ignore_index=True)
    apart = table["t0_ns"] >= table["t1_ns"].shift(fill_value=table["t0_ns"].min())
    return define(table[apart].reset_index(drop=True), _STEP_MEANINGS)


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
