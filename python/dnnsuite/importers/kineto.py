# SPDX-License-Identifier: MIT
"""The JSON trace that torch.profiler writes (Kineto's), as the tables of :mod:`dnnsuite.profiler.activity`.

Times are microseconds in the file, whole ones since 1970 in older files, decimals in newer ones: both are read exactly.
Events are read one at a time, so that a trace takes the memory of its columns; less in
:mod:`dnnsuite.importers.large`.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lazy import pandas as pd
from ..profiler.activity.tables import tables_of
from ..profiler.data import operator_table
from ..profiler.instrument import define
from ._extent import with_windows
from ._text import BadFile, encoding_of, unpacked
from ._trace_rows import TraceRows
from .nsys import without_version

_CHUNK_BYTES = 1 << 22
_LONGEST_VALUE = 1 << 26  # characters; what is not whole by then is no JSON
_LONGEST_ESCAPE = 6
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")


class TraceFile:
    """A trace's events by iteration, once; `about` has the other values of the file, when it has been read.

    Raises:
        BadFile: while it is read: no JSON, a file that is cut, or one without a list of events.
    """

    def __init__(self, path: Path) -> None:
        self.about: dict[str, Any] = {}
        self._path = path
        self._text, self._at = "", 0
        self._lines = 1  # before the text that is held
        self._ended = False
        # As decimals, because a double has too few digits for microseconds since 1970. Names hold tabs as they are.
        self._decode = json.JSONDecoder(parse_float=Decimal, strict=False).raw_decode

    def __iter__(self) -> Iterator[Any]:
        with unpacked(self._path) as self._file:
            first = self._file.read(_CHUNK_BYTES)
            if not first or first.isspace():
                raise BadFile(self._path, "the file is empty")
            self._decoder = codecs.getincrementaldecoder(encoding_of(first))(errors="replace")
            self._text = self._decoder.decode(first)
            yield from self._whole()

    def _whole(self) -> Iterator[Any]:
        start = self._next()
        if start == "[":
            self._at += 1
            yield from self._list()
            return
        if start != "{":
            raise self._no_json("the file does not begin with { or [")
        self._at += 1
        found = False
        while self._next(_BETWEEN) == '"':
            key = self._value()
            if self._next() != ":":
                raise self._no_json("a name without a value")
            self._at += 1
            if key == "traceEvents" and self._next() == "[":
                self._at += 1
                yield from self._list()
                found = True
            else:
                self.about[str(key)] = self._value()
        if self._next() != "}":
            raise self._no_json("the object is not closed")
        if not found:
            raise BadFile(self._path, "no list traceEvents: not a trace of torch.profiler")

    def _list(self) -> Iterator[Any]:
        while (following := self._next(_BETWEEN)) != "]":
            if not following:
                raise self._no_json("the list is not closed")
            yield self._value()
        self._at += 1

    def _next(self, space: re.Pattern[str] = _SPACE) -> str:
        """Return the next character that is no space; "" at the end."""
        while True:
            match = space.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except RecursionError as error:
                raise self._no_json("it is nested too deeply") from error
            except (ValueError, ArithmeticError) as error:
                if "escape" in getattr(error, "msg", "") and self._repair():
                    continue
                if len(self._text) - self._at > _LONGEST_VALUE or not self._more():
                    raise self._no_json(getattr(error, "msg", str(error)), getattr(error, "pos", 0)) from error
            else:
                if end < len(self._text) or self._ended:  # else a number may go on
                    self._at = end
                    return value
                self._more()

    def _repair(self) -> bool:
        """Double the backslashes that escape nothing, as of a Windows path in a name; True if there were any."""
        end = max(self._at, len(self._text) - (0 if self._ended else _LONGEST_ESCAPE))
        rest = _ESCAPE.sub(lambda found: found[0] if found[1] else r"\\", self._text[self._at : end])
        changed = len(rest) != end - self._at
        self._text = self._text[: self._at] + rest + self._text[end:]
        return changed

    def _more(self) -> bool:
        """Read on; what was used is let go. False at the end of the file."""
        if self._ended:
            return False
        chunk = self._file.read(_CHUNK_BYTES)
        self._ended = not chunk
        self._lines += self._text.count("\n", 0, self._at)
        self._text = self._text[self._at :] + self._decoder.decode(chunk, final=self._ended)
        self._at = 0
        return not self._ended

    def _no_json(self, why: str, at: int | None = None) -> BadFile:
        line = self._lines + self._text.count("\n", 0, self._at if at is None else at)
        return BadFile(self._path, f"{why}: no JSON, or the file is cut", line)


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
        names = pd.Series(pd.Categorical.from_codes(ops["name"], pd.Index(strings)))
        found["ops"] = operator_table(ops["t0_ns"], ops["t1_ns"], names, ops["thread"])
    return found


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
