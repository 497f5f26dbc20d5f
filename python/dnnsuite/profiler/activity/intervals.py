# SPDX-License-Identifier: MIT
"""Sets of time as arrays: union, intersection, difference, and the part of each interval inside a set.

A set is a pair of int64 arrays `[N]`, begins and ends in ns, half open, sorted and disjoint, as :func:`union` returns
for any intervals. All functions take O(N log N) without a Python loop.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._lazy import pandas as pd
from ...errors import InvalidArgument
from ..instrument import define, definitions

Times = NDArray[np.int64]


class TimeSet(NamedTuple):
    """Intervals `[t0_ns[i], t1_ns[i])`, ascending, none empty, none touching the next."""

    t0_ns: Times
    t1_ns: Times


def union(t0_ns: ArrayLike, t1_ns: ArrayLike) -> TimeSet:
    """Return the time covered by any of the intervals `[N]`; empty ones, and those that end before they begin, cover
    none.

    Raises:
        InvalidArgument: the two are not arrays of one length.
    """
    begins, ends = np.asarray(t0_ns, np.int64), np.asarray(t1_ns, np.int64)
    if begins.ndim != 1 or begins.shape != ends.shape:
        raise InvalidArgument(f"begins {begins.shape} and ends {ends.shape} must be arrays of one length")
    some = ends > begins
    if not some.all():
        begins, ends = begins[some], ends[some]
    if not len(begins):
        return TimeSet(begins, ends)
    if (begins[1:] < begins[:-1]).any():
        order = np.argsort(begins)
        begins, ends = begins[order], ends[order]
    reach = np.maximum.accumulate(ends)
    apart = begins[1:] > reach[:-1]
    return TimeSet(begins[np.r_[True, apart]], reach[np.r_[apart, True]])


def of_windows(windows: Iterable[tuple[int, int]]) -> TimeSet:
    """Return the time in any of `windows`, (begin, end) in ns.

    Raises:
        InvalidArgument: there is none that has a length.
    """
    pairs = np.array([*windows], np.int64).reshape(-1, 2)
    found = union(pairs[:, 0], pairs[:, 1])
    if not len(found.t0_ns):
        raise InvalidArgument(f"windows={pairs.tolist()}: none has a length")
    return found


def length_ns(times: TimeSet) -> int:
    """Return the total length of the set, ns."""
    return int((times.t1_ns - times.t0_ns).sum())


def overlapping(a: TimeSet, b: TimeSet) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows (of a, of b) of all pairs that overlap, at most len(a) + len(b). Intervals may touch."""
    first = np.searchsorted(b.t1_ns, a.t0_ns, "right")
    counts = np.searchsorted(b.t0_ns, a.t1_ns, "left") - first
    of_a = np.repeat(np.arange(len(a.t0_ns)), counts)
    within = np.arange(len(of_a)) - np.repeat(np.cumsum(counts) - counts, counts)
    return of_a, np.repeat(first, counts) + within


def intersect(a: TimeSet, b: TimeSet) -> TimeSet:
    """Return the time in both."""
    of_a, of_b = overlapping(a, b)
    return TimeSet(np.maximum(a.t0_ns[of_a], b.t0_ns[of_b]), np.minimum(a.t1_ns[of_a], b.t1_ns[of_b]))


def subtract(a: TimeSet, b: TimeSet) -> TimeSet:
    """Return the time in `a` that is not in `b`."""
    limits = np.iinfo(np.int64)
    rest = union(np.r_[limits.min, b.t1_ns], np.r_[b.t0_ns, limits.max])
    return intersect(a, rest)


def overlap_ns(times: TimeSet, t0_ns: ArrayLike, t1_ns: ArrayLike) -> Times:
    """Return the length of each interval's `[N]` part inside the set, ns; intervals may overlap each other."""
    before = np.r_[0, np.cumsum(times.t1_ns - times.t0_ns)]

    def up_to(t_ns: Times) -> Times:
        begun = np.searchsorted(times.t0_ns, t_ns, "right")
        last = np.maximum(begun - 1, 0)
        unfinished = np.maximum(times.t1_ns[last] - t_ns, 0) if len(times.t1_ns) else 0
        return np.where(begun > 0, before[begun] - unfinished, 0)

    begins, ends = np.asarray(t0_ns, np.int64), np.asarray(t1_ns, np.int64)
    return np.maximum(up_to(ends) - up_to(begins), 0)


_LAUNCH = {
    "launch_t0_ns": "when the host began the call that launched it: the earliest runtime or driver call of its "
    "correlation id; missing when that call was not recorded",
    "launch_t1_ns": "when that call returned",
    "launch_thread": "native id of the thread that called",
    "queue_ns": "t0_ns - launch_t0_ns: how long it waited, behind other work or for the GPU to notice",
}
_SPAN = {
    "span": "innermost span of the process open when it was launched; missing when none was",
    "step": "step of that span",
}


def with_launches(work: pd.DataFrame, api: pd.DataFrame) -> pd.DataFrame:
    """Add the columns `launch_t0_ns`, `launch_t1_ns`, `launch_thread` and `queue_ns` to `work`.

    Args:
        work: table `kernels`, `memops` or `graphs` of :class:`ActivityInstrument`.
        api: table `api` of the same instrument.
    """
    calls = api.sort_values(["correlation", "t0_ns"], kind="stable").drop_duplicates("correlation")
    ids = calls["correlation"].to_numpy()
    wanted = work["correlation"].to_numpy()
    row = np.minimum(np.searchsorted(ids, wanted), max(len(ids) - 1, 0))
    known = ids[row] == wanted if len(ids) else np.zeros(len(wanted), bool)

    def column(name: str) -> Any:
        values = calls[name].to_numpy()[row] if len(ids) else np.zeros(len(wanted), np.int64)
        return pd.arrays.IntegerArray(values.astype(np.int64), ~known)

    found = work.assign(launch_t0_ns=column("t0_ns"), launch_t1_ns=column("t1_ns"), launch_thread=column("thread"))
    found["queue_ns"] = found["t0_ns"] - found["launch_t0_ns"]
    return defined_as(work, found, _LAUNCH)


def innermost(spans: pd.DataFrame, t_ns: Times) -> NDArray[np.int64]:
    """Find, for each time `[N]`, the row of `spans` that is open then and began last; -1 if there is none.

    If several spans began at the same time, the one that ends first is the inner one. A span is open from `t0_ns` until
    just before `t1_ns`.
    """
    edges, rows = _timeline(spans["t0_ns"].to_numpy(), spans["t1_ns"].to_numpy())
    return rows[np.searchsorted(edges, t_ns, "right")]


def _timeline(t0_ns: Times, t1_ns: Times) -> tuple[Times, NDArray[np.int64]]:
    """Return edges `[E]` and rows `[E + 1]`: the innermost row before the first edge (-1), between edges, after the
    last (-1)."""
    edges = np.unique(np.r_[t0_ns, t1_ns])
    order = np.argsort(t0_ns, kind="stable")
    begins, ends = t0_ns.tolist(), t1_ns.tolist()
    rows = np.full(len(edges) + 1, -1, np.int64)
    opened: list[tuple[int, int, int]] = []  # a heap, the innermost on top
    upcoming = 0
    for place, edge in enumerate(edges.tolist(), start=1):
        while upcoming < len(order) and begins[order[upcoming]] == edge:
            row = int(order[upcoming])
            heapq.heappush(opened, (-begins[row], ends[row], -row))
            upcoming += 1
        while opened and opened[0][1] <= edge:
            heapq.heappop(opened)
        if opened:
            rows[place] = -opened[0][2]
    return edges, rows


def attribute(work: pd.DataFrame, api: pd.DataFrame, spans: pd.DataFrame, label: str = "name") -> pd.DataFrame:
    """Add to `work` its launches (:func:`with_launches`), and the `span` and `step` in which it was launched.

    Args:
        work, api: tables of :class:`ActivityInstrument`; `work` is `kernels`, `memops` or `graphs`.
        spans: any table with `t0_ns`, `t1_ns`, a column `label` and optionally `step`: spans, phases or NVTX markers.
        label: column of `spans` with their names.

    Raises:
        InvalidArgument: `spans` lacks a column.
    """
    missing = [column for column in ("t0_ns", "t1_ns", label) if column not in spans]
    if missing:
        raise InvalidArgument(f"spans has no column {missing}, only {list(spans.columns)}")
    found = with_launches(work, api)
    unknown = found["launch_t0_ns"].isna().to_numpy()
    row = innermost(spans, found["launch_t0_ns"].fillna(np.iinfo(np.int64).min).to_numpy(np.int64))
    row[unknown] = -1
    labels = spans[label].astype("category")
    codes = np.r_[labels.cat.codes.to_numpy(), -1]  # row -1 is the last: none
    found["span"] = pd.Categorical.from_codes(codes[row], labels.cat.categories)
    if "step" in spans:
        steps = np.r_[spans["step"].to_numpy(np.int64), 0]
        found["step"] = pd.arrays.IntegerArray(steps[row], row < 0)
    return defined_as(found, found, _SPAN)


def defined_as(old: pd.DataFrame, new: pd.DataFrame, more: dict[str, str]) -> pd.DataFrame:
    """Give `new` the definitions of `old`, if it has any, and those of added columns."""
    added = {column: meaning for column, meaning in more.items() if column in new}
    new.attrs["definitions"] = definitions(old) | added
    return new


_GAPS = {
    "device": "number of the GPU, as CUDA counts",
    "t0_ns": "end of the work before, or the window's begin",
    "t1_ns": "begin of the work after, or the window's end",
    "gap_ns": "t1_ns - t0_ns: neither a kernel nor a copy nor a memset ran on this GPU",
    "after": "the kernel, copy or memset that ended the gap; missing when the window ended first",
    "host_ns": "of the gap, until the call that launched what ended it had returned: the GPU waited for the host. All "
    "of it when the window ended first; missing when that call was not recorded",
    "in_calls_ns": "of the gap, time in which a thread was in a CUDA call; missing when no call was recorded",
    "call": "CUDA call that took most of the gap; missing when the host was in none: it ran Python, waited for "
    "data, or the like",
    "call_ns": "time of the gap in calls of that function, summed over threads",
    "span": "innermost span of the process open at the middle of the gap; missing when none was",
}
_HOST_BOUND = {
    "device": "number of the GPU, as CUDA counts",
    "idle_ns": "time in the windows in which the GPU did nothing, in gaps of any length",
    "unknown_ns": "of this, in gaps before work whose launch was not recorded",
    "host_ns": "of this, before the call that launched the next work had returned; missing as the next",
    "host_bound_pct": "100 host_ns / length of the windows: the share of time in which a faster host would have given "
    "the GPU work; missing where unknown_ns is more than 5 % of the windows",
}
_UNKNOWN_PCT = 5.0


def idle_gaps(
    kernels: pd.DataFrame,
    api: pd.DataFrame,
    windows: Iterable[tuple[int, int]],
    *,
    memops: pd.DataFrame | None = None,
    graphs: pd.DataFrame | None = None,
    spans: pd.DataFrame | None = None,
    label: str = "name",
    least_ns: int = 0,
) -> pd.DataFrame:
    """List idle gaps of at least `least_ns`, a row each, longest first. `definitions` explains the columns.

    Args:
        kernels, api, memops, graphs: tables of :class:`ActivityInstrument`.
        windows: (begin, end) in ns.
        spans, label: see :func:`attribute`.
        least_ns: shortest gap to list, ns.

    Raises:
        InvalidArgument: no window has a length.
    """
    inside = of_windows(windows)
    calls = _outermost_calls(api)
    tables = []
    for device, work in _work_of_devices(kernels, memops, graphs):
        found = _gaps_of(with_launches(work, api), inside)
        found = found[found["gap_ns"] >= least_ns].reset_index(drop=True)
        found.insert(0, "device", device)
        tables.append(_with_calls(found, calls))
    empty = pd.DataFrame({column: [] for column in _GAPS if column != "span"})
    gaps = pd.concat(tables) if tables else empty
    gaps = gaps.sort_values("gap_ns", ascending=False, kind="stable", ignore_index=True)
    gaps["in_calls_ns"] = gaps["in_calls_ns"].astype("Int64")
    if not len(api):
        gaps["in_calls_ns"] = gaps["host_ns"] = pd.array([pd.NA] * len(gaps), dtype="Int64")
    gaps["span"] = _span_of(gaps, spans, label)
    return define(gaps[list(_GAPS)], _GAPS)


def host_bound(gaps: pd.DataFrame, windows: Iterable[tuple[int, int]]) -> pd.DataFrame:
    """Compute the fraction of time that each GPU waited for the host: a row each.

    Args:
        gaps: result of :func:`idle_gaps` with `least_ns=0` for the same `windows`.
        windows: (begin, end) in ns.
    """
    window_ns = length_ns(of_windows(windows))
    unknown = gaps["gap_ns"].where(gaps["host_ns"].isna(), 0)
    sums = gaps.assign(unknown_ns=unknown).groupby("device")[["gap_ns", "unknown_ns", "host_ns"]].sum()
    rows = [
        (int(device), int(idle_ns), int(unknown_ns), *known_share(int(host_ns), int(unknown_ns), window_ns))
        for device, idle_ns, unknown_ns, host_ns in sums.itertuples()
    ]
    return define(pd.DataFrame(rows, columns=list(_HOST_BOUND)).astype({"host_ns": "Int64"}), _HOST_BOUND)


def known_share(host_ns: int, unknown_ns: int, window_ns: int) -> tuple[int | None, float]:
    """Return `host_ns` and its percentage of the window; None and NaN if too much idle time has an unknown cause."""
    if unknown_ns > _UNKNOWN_PCT / 100 * window_ns:
        return None, math.nan
    return host_ns, 100 * host_ns / window_ns


def _work_of_devices(
    kernels: pd.DataFrame, memops: pd.DataFrame | None, graphs: pd.DataFrame | None
) -> list[tuple[int, pd.DataFrame]]:
    """Collect all work of each device, ordered by begin, with a column `what`."""
    shared = ["device", "t0_ns", "t1_ns", "correlation"]
    parts = [kernels[shared].assign(what=kernels["name"].astype(object))]
    if memops is not None:
        parts.append(memops[shared].assign(what=memops["operation"].astype(object)))
    if graphs is not None:
        parts.append(graphs[shared].assign(what="graph"))
    work = pd.concat([part for part in parts if len(part)] or parts[:1]).sort_values("t0_ns", kind="stable")
    return [(int(cast("int", device)), rows) for device, rows in work.groupby("device")]


def _gaps_of(work: pd.DataFrame, inside: TimeSet) -> pd.DataFrame:
    begins = work["t0_ns"].to_numpy()
    idle = subtract(inside, union(begins, work["t1_ns"].to_numpy()))
    follower = np.searchsorted(begins, idle.t1_ns)
    row = np.minimum(follower, len(work) - 1)
    followed = begins[row] == idle.t1_ns
    launched = work["launch_t1_ns"].iloc[row].reset_index(drop=True)
    host = (launched.clip(upper=pd.Series(idle.t1_ns)) - idle.t0_ns).clip(lower=0)
    host = host.where(followed, idle.t1_ns - idle.t0_ns)
    return pd.DataFrame(
        {
            "t0_ns": idle.t0_ns,
            "t1_ns": idle.t1_ns,
            "gap_ns": idle.t1_ns - idle.t0_ns,
            "after": work["what"].iloc[row].reset_index(drop=True).where(followed, None),
            "host_ns": host.astype("Int64"),
        }
    )


def _outermost_calls(api: pd.DataFrame) -> list[pd.DataFrame]:
    """Select the outermost calls of each thread, ascending: the driver's calls inside the runtime's are left out."""
    outermost = []
    for _, calls in api.sort_values(["t0_ns", "t1_ns"], ascending=[True, False]).groupby("thread"):
        reach = np.r_[np.iinfo(np.int64).min, np.maximum.accumulate(calls["t1_ns"].to_numpy())[:-1]]
        outermost.append(calls[calls["t0_ns"].to_numpy() >= reach])
    return outermost


def _with_calls(gaps: pd.DataFrame, calls: list[pd.DataFrame]) -> pd.DataFrame:
    """Add `in_calls_ns`, `call` and `call_ns` to `gaps`."""
    times = TimeSet(gaps["t0_ns"].to_numpy(np.int64), gaps["t1_ns"].to_numpy(np.int64))
    shares = [_shares(times, each) for each in calls]
    if calls:
        every = pd.concat(calls)
        in_calls = union(every["t0_ns"].to_numpy(), every["t1_ns"].to_numpy())
        taken = pd.concat(shares).groupby(["gap", "function"], observed=True)["ns"].sum().reset_index()
    else:
        in_calls = union([], [])
        taken = pd.DataFrame({"gap": [], "function": [], "ns": []})
    most = taken.sort_values("ns", ascending=False, kind="stable").drop_duplicates("gap").set_index("gap")
    return gaps.assign(
        in_calls_ns=overlap_ns(in_calls, times.t0_ns, times.t1_ns),
        call=most["function"].astype(object).reindex(gaps.index),
        call_ns=most["ns"].reindex(gaps.index).fillna(0).astype(np.int64),
    )


def _shares(gaps: TimeSet, calls: pd.DataFrame) -> pd.DataFrame:
    """Return gap, function and shared ns of each pair of a gap and a call of one thread that overlap."""
    begins, ends = calls["t0_ns"].to_numpy(), calls["t1_ns"].to_numpy()
    of_gap, of_call = overlapping(gaps, TimeSet(begins, ends))
    shared = np.minimum(gaps.t1_ns[of_gap], ends[of_call]) - np.maximum(gaps.t0_ns[of_gap], begins[of_call])
    table = pd.DataFrame({"gap": of_gap, "function": calls["function"].to_numpy()[of_call], "ns": shared})
    return table[shared > 0]


def _span_of(gaps: pd.DataFrame, spans: pd.DataFrame | None, label: str) -> Any:
    if spans is None or not len(gaps):
        return pd.Series([None] * len(gaps), dtype=object)
    middle: Times = ((gaps["t0_ns"] + gaps["t1_ns"]) // 2).to_numpy(np.int64)
    row: NDArray[np.int64] = innermost(spans, middle)
    names = np.r_[spans[label].astype(object).to_numpy(), None]
    return names[row]
