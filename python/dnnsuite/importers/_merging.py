# SPDX-License-Identifier: MIT
"""Sums of the results of a trace's stretches: those of the whole trace."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._lazy import pandas as pd
from ..profiler import define
from ..profiler.activity import (
    by_class,
    by_kernel,
    exposed_communication,
    host_bound,
    idle_gaps,
    intervals,
    known_share,
    utilization,
)
from ..profiler.data import BETWEEN, analyse_operators
from ..profiler.instrument import definitions
from .traces import data_waits, summed, updates

_NEVER, _FOREVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_MOST_GAPS = 1000
_EXACT = 4096  # different durations of a kernel that are counted one by one
_SUMS = (
    "kernels", "kernel_ns", "kernel_sum_ns", "memop_ns", "idle_ns", "comm_ns", "exposed_comm_ns",
)  # fmt: skip

# Tables of results that are sums: the table of the trace, and its columns by which it is summed.
_SUMMED = {
    "kernels_by_name": ("kernels", ["class", "name"]), "calls_by_name": ("api", ["function"]),
    "copies": ("memops", ["operation"]), "ranges": ("markers", ["name"]),
}  # fmt: skip

Windows = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Stretch:
    """A part of a trace: tables of what runs in it, windows in it. Rows that begin before `begin_ns` are another's."""

    begin_ns: int
    end_ns: int
    windows: Windows
    tables: dict[str, pd.DataFrame]

    def own(self) -> dict[str, pd.DataFrame]:
        """Return the tables without rows of the stretch before."""
        return {name: table[table["t0_ns"] >= self.begin_ns] for name, table in self.tables.items()}


@dataclass
class _Device:
    """Sums of one device, over its time up to `from_ns`."""

    from_ns: int = _NEVER
    sums: Counter[str] = field(default_factory=Counter)
    last: _Work | None = None  # one row of it


class _Work(NamedTuple):
    """Work of one device in a stretch, and the host's calls."""

    kernels: pd.DataFrame
    memops: pd.DataFrame
    api: pd.DataFrame

    @property
    def idle(self) -> bool:
        """True if the device does nothing."""
        return not len(self.kernels) and not len(self.memops)

    def head(self) -> _Work:
        """Return the first row of each table."""
        return _Work(self.kernels.head(1), self.memops.head(1), self.api.head(1))

    def until(self, end_ns: int, from_ns: int) -> int:
        """End of the stretch where something runs over it, or where it is the last one; else of the last work in it."""
        ends = [int(table["t1_ns"].max()) for table in (self.kernels, self.memops) if len(table)]
        return end_ns if end_ns == _FOREVER else min(max([*ends, from_ns]), end_ns)

    def counted_before(self, begin_ns: int, windows: Windows) -> int:
        """Number of kernels that run in the windows both before and after a time."""
        over = self.kernels[(self.kernels["t0_ns"] < begin_ns) & (self.kernels["t1_ns"] > begin_ns)]
        begins, ends = over["t0_ns"].to_numpy(), over["t1_ns"].to_numpy()
        inside, middle = intervals.of_windows(windows), np.full(len(begins), begin_ns)
        both = [intervals.overlap_ns(inside, *part) > 0 for part in ((begins, middle), (middle, ends))]
        return int((both[0] & both[1]).sum())


class Merged:
    """Sums over stretches in the order of time.

    Args:
        windows: those of the whole trace.
        main: number of the thread that runs the loop.
        with_calls: False where the host's clock is not the GPU's, so that nothing is said of its calls in gaps.
    """

    def __init__(self, windows: Windows, main: int, with_calls: bool = True) -> None:
        self.windows, self._main, self._with_calls = windows, main, with_calls
        self._devices: dict[int, _Device] = {}
        self._overhead_ns = 0
        self._summed: dict[str, dict[tuple[str, ...], _Durations]] = {}  # as _SUMMED, by the values of the columns
        self._bytes: Counter[tuple[str, ...]] = Counter()
        self._gaps: list[pd.DataFrame] = []
        self._shares: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._ops: dict[tuple[str, str], NDArray[np.float64]] = {}
        self._like: dict[str, pd.DataFrame] = {}  # a table of each name, for columns and definitions

    def add(self, stretch: Stretch) -> None:
        """Add a stretch."""
        self._add_sums(stretch)
        self._add_devices(stretch)
        if stretch.windows:
            self._add_operators(stretch)

    def _add_sums(self, stretch: Stretch) -> None:
        own = stretch.own()
        own["markers"] = own["markers"][own["markers"]["t1_ns"] > own["markers"]["t0_ns"]]
        first = {name: table.head(1) for name, table in own.items()}
        kernels = {"kernels_by_name": by_kernel(first["kernels"]), "kernels_by_class": by_class(first["kernels"])}
        self._like = {name: table for name, table in (kernels | summed(first)).items() if len(table)} | self._like
        for name, (table, keys) in _SUMMED.items():
            for values, group in own[table].groupby(keys, observed=True, sort=False):
                key = tuple(map(str, values))
                durations = (group["t1_ns"] - group["t0_ns"]).to_numpy(np.int64)
                self._summed.setdefault(name, {}).setdefault(key, _Durations()).add(durations)
                if table == "memops":
                    self._bytes[key] += int(group["bytes"].sum())

    @property
    def needed_ns(self) -> int:
        """Begin of the first gap that is not over: host calls from here on are still to be seen."""
        return min((device.from_ns for device in self._devices.values()), default=_NEVER)

    def _add_devices(self, stretch: Stretch) -> None:
        """Add the work of each device up to where its last gap in the stretch begins; the next one has that whole."""
        inside = intervals.of_windows(stretch.windows) if stretch.windows else intervals.union([], [])
        overhead = stretch.tables["overhead"]
        covered = intervals.union(overhead["t0_ns"].to_numpy(), overhead["t1_ns"].to_numpy())
        self._overhead_ns += intervals.length_ns(intervals.intersect(covered, inside))
        kernels, memops, api = (stretch.tables[name] for name in ("kernels", "memops", "api"))
        api = api if self._with_calls else api.head(0)
        devices = {*kernels["device"].tolist(), *memops["device"].tolist()}
        for device in sorted(devices | {*self._devices}):
            own = _Work(kernels[kernels["device"] == device], memops[memops["device"] == device], api)
            since = self._devices.setdefault(device, _Device())
            if own.idle and since.last is not None:
                own = since.last._replace(api=own.api)
            since.last = own.head()
            until = own.until(stretch.end_ns, since.from_ns)
            if until > since.from_ns:
                self._add_work(since, own, (since.from_ns, until))
                since.from_ns = until

    def _add_work(self, device: _Device, own: _Work, times: tuple[int, int]) -> None:
        part = intervals.intersect(intervals.of_windows(self.windows), intervals.of_windows([times]))
        if not len(part.t0_ns):
            return
        windows = [*zip(part.t0_ns.tolist(), part.t1_ns.tolist(), strict=True)]
        gaps = idle_gaps(own.kernels, own.api, windows, memops=own.memops)
        tables = {
            "busy": utilization(own.kernels, windows, memops=own.memops),
            "comm": exposed_communication(own.kernels, windows),
            "host": host_bound(gaps, windows).drop(columns=["idle_ns", "unknown_ns"]),
        }
        self._like = {"idle_gaps": gaps} | tables | self._like
        for table in (tables["busy"], tables["comm"]):
            for row in table.to_dict("records"):
                device.sums.update({name: int(row[name]) for name in _SUMS if not pd.isna(row.get(name))})
        device.sums["host_ns"] += int(gaps["host_ns"].sum())
        device.sums["unknown_ns"] += int(gaps["gap_ns"].where(gaps["host_ns"].isna(), 0).sum())
        device.sums["kernels"] -= own.counted_before(times[0], self.windows)
        self._gaps = [_longest([*self._gaps, gaps])]

    def _add_operators(self, stretch: Stretch) -> None:
        ops = stretch.tables.get("ops")
        waits = data_waits(stretch.tables["markers"])
        found = {}
        if ops is not None:
            done = updates(stretch.tables["markers"], ops)
            found = analyse_operators(ops, stretch.windows, waits, done, self._main)
        if not found:
            self._add_empty(stretch.windows, waits)
            return
        self._like = found | self._like
        count = len(stretch.windows)
        for row in found["breakdown"].to_dict("records"):
            self._shares[row["class"], row["definition"]] += row["ms_per_step"] * count
        for row in found["ops_by_name"].to_dict("records"):
            sums = self._ops.setdefault((row["name"], row["class"]), np.zeros(2))
            sums += np.array([row["calls_per_step"], row["self_ms_per_step"]]) * count

    def _add_empty(self, windows: Windows, waits: Windows) -> None:
        """Time in which no operator ran."""
        inside = intervals.of_windows(windows)
        begins, ends = (np.array([wait[side] for wait in waits], np.int64) for side in (0, 1))
        waited_ns = intervals.length_ns(intervals.intersect(intervals.union(begins, ends), inside))
        self._shares["data wait", ""] += waited_ns / 1e6
        self._shares[BETWEEN, ""] += (intervals.length_ns(inside) - waited_ns) / 1e6

    def results(self) -> dict[str, pd.DataFrame]:
        """Tables of the whole, as :func:`dnnsuite.importers.analyse_trace` makes them of a small trace."""
        found = {}
        sums = {name: self._by_key(name) for name in _SUMMED if name in self._summed}
        kernels = sums.pop("kernels_by_name", None)
        if kernels is not None and "busy" in self._like:
            classes = kernels.groupby("class", sort=False)[["calls", "total_ns", "share_pct"]].sum().reset_index()
            found = {
                "gpu": self._gpu(), "kernels_by_name": kernels,
                "kernels_by_class": self._as("kernels_by_class", _longest_first(classes)), "idle_gaps": self._gaps[0],
            }  # fmt: skip
        found |= sums
        if self._ops:
            if "gpu" not in found:
                found["breakdown"] = self._breakdown()
            found["ops_by_name"] = self._by_name()
        return found

    def _gpu(self) -> pd.DataFrame:
        window_ns = intervals.length_ns(intervals.of_windows(self.windows))
        left_ns = window_ns - self._overhead_ns
        rows = []
        for device, known in sorted(self._devices.items()):
            sums = known.sums
            busy_ns = sums["kernel_ns"]
            host_ns, host_pct = known_share(sums["host_ns"], sums["unknown_ns"], window_ns)
            rows.append({
                "device": device, "window_ns": window_ns, "overhead_ns": self._overhead_ns,
                **{name: sums[name] for name in _SUMS}, "host_ns": host_ns,
                "raw_pct": 100 * busy_ns / window_ns,
                "compute_pct": 100 * busy_ns / left_ns if left_ns else math.nan,
                "concurrency": sums["kernel_sum_ns"] / busy_ns if busy_ns else math.nan,
                "exposed_pct": 100 * sums["exposed_comm_ns"] / window_ns,
                "host_bound_pct": host_pct,
            })  # fmt: skip
        likes = [self._like[name] for name in ("busy", "comm", "host")]
        meanings = {name: definitions(like)[name] for like in likes for name in map(str, like)}
        return define(pd.DataFrame(rows)[list(meanings)].astype({"host_ns": "Int64"}), meanings)

    def _by_key(self, name: str) -> pd.DataFrame:
        keys, sums = _SUMMED[name][1], self._summed[name]
        columns = list(self._like[name].columns)
        rows = [(*key, *durations.statistics()) for key, durations in sums.items()]
        statistics = ["calls", "total_ns", "mean_ns", "median_ns", "least_ns", "most_ns"]
        table = pd.DataFrame(rows, columns=[*columns[: len(keys)], *statistics])
        table["share_pct"] = 100 * table["total_ns"] / max(int(table["total_ns"].sum()), 1)
        if "bytes" in columns:
            table["bytes"] = [self._bytes[key] for key in sums]
            table["gb_per_s"] = table["bytes"] / table["total_ns"].where(table["total_ns"] > 0)
        return self._as(name, _longest_first(table))

    def _as(self, name: str, rows: Any) -> pd.DataFrame:
        """Make a table with the columns and definitions of the whole analysis' table of this name."""
        like = self._like[name]
        return define(pd.DataFrame(rows, columns=list(like.columns)), definitions(like))

    def _breakdown(self) -> pd.DataFrame:
        total_ms = intervals.length_ns(intervals.of_windows(self.windows)) / 1e6
        texts = {kind: text for kind, text in self._shares if text}
        sums: defaultdict[str, float] = defaultdict(float)
        for (kind, _), ms in self._shares.items():
            sums[kind] += ms
        rows = [
            (kind, ms / len(self.windows), 100 * ms / total_ms, texts.get(kind, ""))
            for kind, ms in sorted(sums.items(), key=lambda item: -item[1])
            if ms > 0
        ]
        return self._as("breakdown", rows)

    def _by_name(self) -> pd.DataFrame:
        ordered = sorted(self._ops.items(), key=lambda item: -item[1][1])
        total_ms = sum(sums[1] for _, sums in ordered) or 1.0
        rows = [
            (*key, calls / len(self.windows), ms / len(self.windows), 100 * ms / total_ms)
            for key, (calls, ms) in ordered
        ]
        return self._as("ops_by_name", rows)


class _Durations:
    """Durations of one kernel: counted one by one, or to three digits where thousands differ."""

    def __init__(self) -> None:
        self._values = self._counts = np.zeros(0, np.int64)
        self._total_ns, self._least_ns, self._most_ns = 0, _FOREVER, 0
        self._coarse = False

    def add(self, durations: NDArray[np.int64]) -> None:
        self._total_ns += int(durations.sum())
        self._least_ns = min(self._least_ns, int(durations.min()))
        self._most_ns = max(self._most_ns, int(durations.max()))
        self._count(np.append(self._values, durations), np.append(self._counts, np.ones_like(durations)))
        if not self._coarse and len(self._values) > _EXACT:
            self._coarse = True
            self._count(self._values, self._counts)

    def _count(self, durations: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        durations = _three_digits(durations) if self._coarse else durations
        self._values, which = np.unique(durations, return_inverse=True)
        self._counts = np.bincount(which, counts).astype(np.int64)

    def statistics(self) -> tuple[int, int, float, float, int, int]:
        """Return (calls, total_ns, mean_ns, median_ns, least_ns, most_ns)."""
        upto = np.cumsum(self._counts)
        calls = int(upto[-1])
        middle = np.searchsorted(upto, [(calls - 1) // 2, calls // 2], side="right")
        median = float(self._values[middle].mean())
        return calls, self._total_ns, self._total_ns / calls, median, self._least_ns, self._most_ns


def _three_digits(durations: NDArray[np.int64]) -> NDArray[np.int64]:
    scale = 10.0 ** np.maximum(np.floor(np.log10(np.maximum(durations, 1))) - 2, 0)
    return (np.round(durations / scale) * scale).astype(np.int64)


def _longest_first(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def _longest(gaps: Iterable[pd.DataFrame]) -> pd.DataFrame:
    tables = [*gaps]
    joined = pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)
    joined = joined.sort_values("gap_ns", ascending=False, kind="stable", ignore_index=True).head(_MOST_GAPS)
    return define(joined, definitions(tables[0]))
