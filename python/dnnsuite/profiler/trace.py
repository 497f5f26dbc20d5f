# SPDX-License-Identifier: MIT
"""Traces for viewers: https://ui.perfetto.dev, chrome://tracing, TensorBoard.

The format is Chrome's Trace Event Format. Each table of intervals is a track for each GPU stream or host thread, each
table of samples a counter, and an arrow leads from the call that launched a kernel to the kernel.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._files import replacing
from .._lazy import pandas as pd
from ..errors import InvalidArgument

_GPU_TABLES = ("kernels", "memops", "graphs")
_LABELS = ("name", "phase", "function", "operation", "kind", "op")  # the first of these columns names the slices
_UNSHOWN = {"t0_ns", "t1_ns", "device", "stream", "thread", "t_ns"}  # the slice's place says it already
_GPU = 1_000_000  # process numbers: GPUs from here, counters from twice this; hosts' own are below
_HOST = 1


@dataclass
class _Tracks:
    """Numbers for processes and threads of the trace, and the events that name them."""

    names: list[str] = field(default_factory=list)
    _processes: set[int] = field(default_factory=set)
    _threads: dict[tuple[int, Any], int] = field(default_factory=dict)

    def process(self, pid: int, name: str) -> int:
        if pid not in self._processes:
            self._processes.add(pid)
            self._name("process_name", pid, 0, name)
        return pid

    def thread(self, pid: int, key: Any, name: str) -> int:
        tid = self._threads.setdefault((pid, key), len(self._threads) + 1)
        if tid == len(self._threads):
            self._name("thread_name", pid, tid, name)
        return tid

    def _name(self, what: str, pid: int, tid: int, name: str) -> None:
        self.names.append(f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"args":{{"name":{json.dumps(name)}}}}}')


def export_trace(tables: Mapping[str, pd.DataFrame], path: str | Path) -> Path:
    """Write the trace of `tables` to `path`, compressed when that ends in `.gz`; whole or not at all.

    Args:
        tables: tables by name, with times in ns of CLOCK_MONOTONIC. A table with columns `t0_ns`, `t1_ns` gives
            slices, named by its column `name`, `phase`, `function`, `operation` or `kind`. One with `device` and
            without `thread` lies at that GPU, on its `stream` where it has one; others lie at the host, on their
            `thread`. A table with `t_ns`, `name` and `value` gives counters. Others, and empty ones, are left out.

    Returns:
        `path`.

    Raises:
        InvalidArgument: nothing in `tables` can be shown.
        OutputError: `path` cannot be written.
    """
    target = Path(path)
    events = trace_events(tables)
    with replacing(target) as temporary:
        opened = gzip.open if target.suffix == ".gz" else open
        with opened(temporary, "wt", encoding="utf-8") as file:
            file.write('{"displayTimeUnit":"ns","otherData":{"clock":"CLOCK_MONOTONIC",')
            file.write(f'"base_ns":"{_begin_ns(tables)}","producer":"dnnsuite"}},"traceEvents":[\n')
            for number, event in enumerate(events):
                file.write(event if number == 0 else ",\n" + event)
            file.write("\n]}\n")
    return target


def trace_events(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Yield the events of :func:`export_trace` as JSON; times in µs since the earliest of all tables.

    Raises:
        InvalidArgument: nothing in `tables` can be shown.
    """
    begin_ns = _begin_ns(tables)
    return _events(tables, begin_ns)


def _events(tables: Mapping[str, pd.DataFrame], begin_ns: int) -> Iterator[str]:
    tracks = _Tracks()
    for name, table in tables.items():
        if _has_slices(table):
            yield from _slices(name, table, begin_ns, tracks)
        elif _has_samples(table):
            yield from _counters(table, begin_ns, tracks)
    yield from _arrows(tables, begin_ns, tracks)
    yield from tracks.names


def _has_slices(table: pd.DataFrame) -> bool:
    return len(table) > 0 and {"t0_ns", "t1_ns"} <= {*table.columns}


def _has_samples(table: pd.DataFrame) -> bool:
    return len(table) > 0 and {"t_ns", "name", "value"} <= {*table.columns}


def _begin_ns(tables: Mapping[str, pd.DataFrame]) -> int:
    begins = [int(table["t0_ns"].min()) for table in tables.values() if _has_slices(table)]
    begins += [int(table["t_ns"].min()) for table in tables.values() if _has_samples(table)]
    if not begins:
        raise InvalidArgument(f"tables {sorted(tables)}: none has rows with t0_ns and t1_ns, or t_ns, name and value")
    return min(begins)


def _us(t_ns: int) -> str:
    """Format microseconds to the nanosecond: a float would round after some days."""
    return f"{t_ns // 1000}.{t_ns % 1000:03d}"


def _texts(table: pd.DataFrame, column: str) -> list[str]:
    """Convert a column to JSON strings; each distinct one once."""
    values = table[column].astype("category").cat
    known = [json.dumps(str(value)) for value in values.categories]
    return [known[code] if code >= 0 else '"?"' for code in values.codes.tolist()]


def _place(name: str, table: pd.DataFrame, tracks: _Tracks) -> Iterable[tuple[int, int]]:
    """Yield (process, thread) of each row."""
    if "device" in table and "thread" not in table:
        streams = [name] * len(table)
        if "stream" in table:
            streams = [f"stream {stream}" for stream in table["stream"].tolist()]
        keys = list(zip(table["device"].tolist(), streams, strict=True))
        known = {
            (device, stream): (
                tracks.process(_GPU + device, f"GPU {device}"),
                tracks.thread(_GPU + device, stream, stream),
            )
            for device, stream in sorted({*keys})
        }
        return [known[key] for key in keys]
    pid = tracks.process(_HOST, "host")
    threads = table["thread"].tolist() if "thread" in table else [None] * len(table)
    tids = {
        thread: tracks.thread(pid, (thread, name), name if thread is None else f"{name} of thread {thread}")
        for thread in dict.fromkeys(threads)
    }
    return [(pid, tids[thread]) for thread in threads]


def _slices(name: str, table: pd.DataFrame, begin_ns: int, tracks: _Tracks) -> Iterator[str]:
    label = next((column for column in _LABELS if column in table), None)
    texts = _texts(table, label) if label else [json.dumps(name)] * len(table)
    begins = (table["t0_ns"].to_numpy(np.int64) - begin_ns).tolist()
    lengths = np.maximum(table["t1_ns"].to_numpy(np.int64) - table["t0_ns"].to_numpy(np.int64), 0).tolist()
    rows = zip(texts, begins, lengths, _place(name, table, tracks), _arguments(table, label), strict=True)
    for text, begin, length, (pid, tid), arguments in rows:
        yield (
            f'{{"ph":"X","cat":"{name}","name":{text},"ts":{_us(begin)},"dur":{_us(length)},"pid":{pid},'
            f'"tid":{tid},"args":{{{arguments}}}}}'
        )


def _arguments(table: pd.DataFrame, label: str | None) -> list[str]:
    """Format the remaining columns of each row as the inside of a JSON object, without missing values."""
    shown = [str(column) for column in table.columns if column not in _UNSHOWN and column != label]
    pieces = []
    for column in shown:
        key, values = json.dumps(column), table[column]
        missing = values.isna().tolist()
        if values.dtype.kind in "iufb":
            known = [repr(value).lower() for value in values.tolist()]  # true, not True
            missing = [lost or text in ("inf", "-inf") for lost, text in zip(missing, known, strict=True)]
        elif values.dtype.kind in "O" and not len(values.dropna()):
            continue
        else:
            known = _texts(table, column)
        pieces.append(["" if lost else f"{key}:{text}" for lost, text in zip(missing, known, strict=True)])
    return [",".join(filter(None, row)) for row in zip(*pieces, strict=True)] if pieces else [""] * len(table)


def _counters(table: pd.DataFrame, begin_ns: int, tracks: _Tracks) -> Iterator[str]:
    """Yield a counter for each (source, device, name) of the samples; values that are not numbers are left out."""
    keys = [column for column in ("source", "device") if column in table]
    finite = table[np.isfinite(table["value"].to_numpy(np.float64))]
    for number, (key, rows) in enumerate(finite.groupby([*keys, "name"], sort=True, observed=True, dropna=False)):
        *where, name = key
        places = [str(part) for part in where if part == part and str(part)]  # NaN differs from itself
        pid = tracks.process(2 * _GPU + number, " ".join([*places, "samples"]))
        unit = str(rows["unit"].iloc[0]) if "unit" in rows else ""
        text = json.dumps(f"{name} ({unit})" if unit else str(name))
        times = (rows["t_ns"].to_numpy(np.int64) - begin_ns).tolist()
        for time, value in zip(times, rows["value"].to_numpy(np.float64).tolist(), strict=True):
            yield f'{{"ph":"C","name":{text},"ts":{_us(time)},"pid":{pid},"tid":0,"args":{{"value":{value!r}}}}}'


def _arrows(tables: Mapping[str, pd.DataFrame], begin_ns: int, tracks: _Tracks) -> Iterator[str]:
    """Yield arrows from each call to the work that it launched, by correlation id."""
    api = tables.get("api")
    if api is None or not _has_slices(api):
        return
    calls = api.sort_values("t0_ns", kind="stable").drop_duplicates("correlation").set_index("correlation")
    for name in _GPU_TABLES:
        work = tables.get(name)
        if work is None or not _has_slices(work):
            continue
        launched = work[work["correlation"].isin(calls.index)]
        callers = calls.loc[launched["correlation"]]
        rows = zip(
            launched["correlation"].tolist(),
            (callers["t0_ns"].to_numpy() - begin_ns).tolist(),
            _place("api", callers, tracks),
            (launched["t0_ns"].to_numpy() - begin_ns).tolist(),
            _place(name, launched, tracks),
            strict=True,
        )
        for number, called, (host, thread), ran, (gpu, stream) in rows:
            flow = f'"cat":"launch","name":"launch","id":{number}'
            yield f'{{"ph":"s",{flow},"ts":{_us(called)},"pid":{host},"tid":{thread}}}'
            yield f'{{"ph":"f","bp":"e",{flow},"ts":{_us(ran)},"pid":{gpu},"tid":{stream}}}'
