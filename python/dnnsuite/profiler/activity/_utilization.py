# SPDX-License-Identifier: MIT
"""Use of the GPU: unions of busy intervals over the program's time, without the profiler's; time by kernel, by copy, by
call of the host and by range of the program; and all analyses of one set of tables at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import cast

import numpy as np

from ..._lazy import pandas as pd
from ...errors import InvalidArgument
from ..instrument import define, definitions
from .intervals import (
    TimeSet,
    attribute,
    defined_as,
    host_bound,
    idle_gaps,
    intersect,
    length_ns,
    of_windows,
    overlap_ns,
    subtract,
    union,
)

_UTILIZATION = {
    "device": "number of the GPU, as CUDA counts",
    "window_ns": "length of the windows",
    "overhead_ns": "of this, under any OVERHEAD record of CUPTI (union over threads): the profiler's and the driver's "
    "own doing, nvvp's pink region",
    "kernels": "kernels (and graphs traced as a whole) that ran in the windows",
    "kernel_ns": "time in which at least one kernel ran: union of their intervals, in the windows",
    "kernel_sum_ns": "sum of kernels' durations in the windows; more than kernel_ns when they ran side by side",
    "memop_ns": "time in which at least one copy or memset ran: union, in the windows",
    "idle_ns": "time in the windows in which neither a kernel nor a copy nor a memset ran",
    "raw_pct": "100 kernel_ns / window_ns: nvvp's 'Compute'",
    "compute_pct": "100 kernel_ns / (window_ns - overhead_ns): compute utilisation without the profiler's share. "
    "Above 100 when kernels ran during overhead; NaN when all was overhead",
    "concurrency": "kernel_sum_ns / kernel_ns: kernels that ran at once, on average of the busy time",
}
_EXPOSED = {
    "device": "number of the GPU, as CUDA counts",
    "comm_ns": "time in which at least one kernel of class communication ran: union, in the windows",
    "exposed_comm_ns": "of this, the time in which no other kernel ran: the GPU did nothing but communicate",
    "exposed_pct": "100 exposed_comm_ns / length of the windows",
}


def corrected_utilization_pct(session_s: float, raw_pct: float, overhead_s: float) -> float:
    """Compute utilisation over a session without the profiler's overhead, in percent.

    The formula is `(session_s * raw_pct / 100) / (session_s - overhead_s)`, which TBD's DNN-Training-Suite computed by
    hand in nvvp: 1.609 s at 0.5 % with 1.3 s of overhead is 2.6 %.

    Raises:
        InvalidArgument: a value is negative, or the overhead is as long as the session.
    """
    if not (session_s > overhead_s >= 0 and raw_pct >= 0):
        raise InvalidArgument(
            f"session_s={session_s}, raw_pct={raw_pct}, overhead_s={overhead_s}: "
            "the overhead must be shorter than the session, and nothing negative"
        )
    return 100 * (session_s * raw_pct / 100) / (session_s - overhead_s)


def time_of(table: pd.DataFrame | None, inside: TimeSet) -> TimeSet:
    """Return the time in `inside` that the rows of a table with `t0_ns`, `t1_ns` cover; none for a missing table."""
    if table is None:
        return union([], [])
    return intersect(union(table["t0_ns"].to_numpy(), table["t1_ns"].to_numpy()), inside)


def utilization(
    kernels: pd.DataFrame,
    windows: Iterable[tuple[int, int]],
    *,
    memops: pd.DataFrame | None = None,
    overhead: pd.DataFrame | None = None,
    graphs: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Compute the utilisation of each GPU that ran a kernel, graph, copy or memset: a row each.

    `definitions` explains the columns.

    Args:
        kernels, memops, overhead, graphs: tables of :class:`ActivityInstrument`.
        windows: (begin, end) in ns; percentages are of their length.

    Raises:
        InvalidArgument: no window has a length.
    """
    inside = of_windows(windows)
    overhead_ns = length_ns(time_of(overhead, inside))
    ran_on = _by_device(kernels, graphs)
    moved_on = _by_device(memops)
    none = kernels.iloc[:0]
    rows = [
        {"device": device} | _one_device(ran_on.get(device, none), moved_on.get(device, none), inside, overhead_ns)
        for device in sorted({*ran_on, *moved_on})
    ]
    return define(pd.DataFrame(rows, columns=list(_UTILIZATION)), _UTILIZATION)


def exposed_communication(kernels: pd.DataFrame, windows: Iterable[tuple[int, int]]) -> pd.DataFrame:
    """Compute the communication that was not hidden behind computation: a row for each GPU that ran a kernel.

    Args:
        kernels: table of :class:`ActivityInstrument`, with its column `class`.
        windows: (begin, end) in ns.

    Raises:
        InvalidArgument: no window has a length.
    """
    inside = of_windows(windows)
    rows = []
    for device, mine in _by_device(kernels, columns=("class",)).items():
        talks = mine["class"] == "communication"
        talked = time_of(mine[talks], inside)
        exposed_ns = length_ns(subtract(talked, time_of(mine[~talks], inside)))
        rows.append((device, length_ns(talked), exposed_ns, 100 * exposed_ns / length_ns(inside)))
    return define(pd.DataFrame(rows, columns=list(_EXPOSED)), _EXPOSED)


def _by_device(*tables: pd.DataFrame | None, columns: tuple[str, ...] = ()) -> dict[int, pd.DataFrame]:
    wanted = ["device", "t0_ns", "t1_ns", *columns]
    some = [table[wanted] for table in tables if table is not None and len(table)]
    if not some:
        return {}
    return {int(cast("int", device)): rows for device, rows in pd.concat(some).groupby("device")}


def _one_device(ran: pd.DataFrame, moved: pd.DataFrame, inside: TimeSet, overhead_ns: int) -> dict[str, int | float]:
    window_ns = length_ns(inside)
    each_ns = overlap_ns(inside, ran["t0_ns"].to_numpy(), ran["t1_ns"].to_numpy())
    running, moving = time_of(ran, inside), time_of(moved, inside)
    kernel_ns, kernel_sum_ns = length_ns(running), int(each_ns.sum())
    left_ns = window_ns - overhead_ns
    busy = union(np.r_[running.t0_ns, moving.t0_ns], np.r_[running.t1_ns, moving.t1_ns])
    return {
        "window_ns": window_ns,
        "overhead_ns": overhead_ns,
        "kernels": int((each_ns > 0).sum()),
        "kernel_ns": kernel_ns,
        "kernel_sum_ns": kernel_sum_ns,
        "memop_ns": length_ns(moving),
        "idle_ns": window_ns - length_ns(busy),
        "raw_pct": 100 * kernel_ns / window_ns,
        "compute_pct": 100 * kernel_ns / left_ns if left_ns else math.nan,
        "concurrency": kernel_sum_ns / kernel_ns if kernel_ns else math.nan,
    }


_SUMS = {
    "calls": "how often it ran",
    "total_ns": "sum of durations; kernels that ran side by side count each",
    "share_pct": "100 total_ns / the sum over all kernels of the table, not over the time of the window",
}
_STATISTICS = {
    "mean_ns": "total_ns / calls",
    "median_ns": "median duration",
    "least_ns": "shortest",
    "most_ns": "longest",
}
_KEYS = {
    "class": "what it is for, judged by its name",
    "name": "demangled name of the kernel",
    "span": "span in which it was launched; missing when in none",
    "device": "number of the GPU, as CUDA counts",
    "function": "the CUDA function that the host called",
    "operation": "direction of the copy (H host, D device, P peer), or memset",
    "range": "name of the range: NVTX's, or of record_function",
}
_BYTES = {"bytes": "copied or set, all together", "gb_per_s": "bytes / total_ns"}


def by_kernel(kernels: pd.DataFrame, top: int | None = None) -> pd.DataFrame:
    """Sum the time of kernels by name: a row each, longest first, at most `top` rows.

    Args:
        kernels: table of :class:`ActivityInstrument`.
        top: largest number of rows; None for all.
    """
    table = _summed(kernels, ["class", "name"]).head(top if top is not None else len(kernels))
    return define(table.reset_index(drop=True), _KEYS | _SUMS | _STATISTICS)


def by_class(kernels: pd.DataFrame) -> pd.DataFrame:
    """Sum the time of kernels by class: a row each, longest first."""
    return define(_summed(kernels, ["class"])[["class", *_SUMS]], _KEYS | _SUMS)


def by_span(kernels: pd.DataFrame) -> pd.DataFrame:
    """Sum the time of kernels by the span in which they were launched and by class: a row each, longest first.

    Args:
        kernels: result of :func:`attribute`.

    Raises:
        InvalidArgument: `kernels` has no column `span`.
    """
    if "span" not in kernels:
        raise InvalidArgument("kernels has no column 'span': attribute(kernels, api, spans) makes it")
    return define(_summed(kernels, ["span", "class"])[["span", "class", *_SUMS]], _KEYS | _SUMS)


def by_call(api: pd.DataFrame) -> pd.DataFrame:
    """Sum the time of the host's calls by function, over all threads: a row each, longest first."""
    return define(_summed(api, ["function"]), _KEYS | _SUMS | _STATISTICS)


def by_copy(memops: pd.DataFrame) -> pd.DataFrame:
    """Sum the time and the bytes of copies by direction: a row each, longest first."""
    table = _summed(memops, ["operation"])
    moved = memops.groupby("operation", observed=True)["bytes"].sum()
    table.insert(3, "bytes", table["operation"].map(moved).astype("int64"))
    table.insert(4, "gb_per_s", table["bytes"] / table["total_ns"].where(table["total_ns"] > 0))
    return define(table, _KEYS | _SUMS | _BYTES | _STATISTICS)


def by_range(markers: pd.DataFrame) -> pd.DataFrame:
    """Sum the time of a program's ranges by name: a row each, longest first. Nested ranges each count in full."""
    ranges = markers[markers["t1_ns"] > markers["t0_ns"]].rename(columns={"name": "range"})
    return define(_summed(ranges, ["range"]), _KEYS | _SUMS | _STATISTICS)


def _summed(kernels: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    durations = kernels["t1_ns"] - kernels["t0_ns"]
    rows = kernels[keys].assign(ns=durations).groupby(keys, observed=True, dropna=False, sort=False)["ns"]
    table = rows.agg(["count", "sum", "mean", "median", "min", "max"]).reset_index()
    table.columns = [*keys, "calls", "total_ns", *_STATISTICS]
    table.insert(len(keys) + 2, "share_pct", 100 * table["total_ns"] / max(int(durations.sum()), 1))
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


_MOST_GAPS = 1000


def analyse(
    tables: Mapping[str, pd.DataFrame],
    windows: Iterable[tuple[int, int]],
    spans: pd.DataFrame | None = None,
    label: str = "name",
) -> dict[str, pd.DataFrame]:
    """Compute further tables from those of :class:`ActivityInstrument`; none if no kernel and no graph ran.

    Args:
        tables: `kernels` and `api`, and optionally `memops`, `overhead` and `graphs`.
        windows: (begin, end) in ns; percentages are of their length.
        spans, label: phases to attribute kernels to; see :func:`attribute`.

    Returns:
        `gpu`: utilisation, communication and waiting for the host, for each GPU; `kernels_by_name`, `kernels_by_class`,
        and with spans `kernels_by_span`; `idle_gaps`: the longest 1000.

    Raises:
        InvalidArgument: no window has a length, or `spans` lacks a column.
    """
    kernels, api = tables["kernels"], tables["api"]
    memops, overhead, graphs = (tables.get(name) for name in ("memops", "overhead", "graphs"))
    if not len(kernels) and (graphs is None or not len(graphs)):
        return {}
    windows = [*windows]
    gaps = idle_gaps(kernels, api, windows, memops=memops, graphs=graphs, spans=spans, label=label)
    busy = utilization(kernels, windows, memops=memops, overhead=overhead, graphs=graphs)
    more = [exposed_communication(kernels, windows), host_bound(gaps, windows).drop(columns=["idle_ns", "unknown_ns"])]
    gpu, meanings = busy, definitions(busy)
    for table in more:
        gpu = gpu.merge(table, on="device", how="left")
        meanings |= {column: text for column, text in definitions(table).items() if column in table}
    found = {
        "gpu": define(gpu, meanings),
        "kernels_by_name": by_kernel(kernels),
        "kernels_by_class": by_class(kernels),
        "idle_gaps": defined_as(gaps, gaps.head(_MOST_GAPS), {}),
    }
    if spans is not None:
        found["kernels_by_span"] = by_span(attribute(kernels, api, spans, label))
    return found
