# SPDX-License-Identifier: MIT
"""Analysis of traces: one alone, several ranks together, two against each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._lazy import pandas as pd
from ..errors import InvalidArgument
from ..profiler import define, definitions
from ..profiler.activity import analyse, by_call, by_copy, by_range, intervals
from ..profiler.data import analyse_operators
from . import nvprof
from ._loading import TRACES, Imported

_DATA = re.compile(r"enumerate\(DataLoader")
_UPDATE = re.compile(r"Optimizer\.step#")
_PAIRWISE = re.compile(r"send_?recv", re.IGNORECASE)  # of two ranks each: the others do not wait in it
_LEAST_WAIT_PCT = 1.0
_RANKS = {
    "rank": "number of the process, by the trace or the file's name",
    "file": "the trace",
    "span_ms": "length of its windows: torch.profiler's steps where they are in it",
    "compute_ms": "time in which some kernel that is no communication ran; without kernels some operator",
    "communication_ms": "time in which some communication kernel ran",
    "waited_ms": "of it, time in collectives after all of this rank's data were there, until the last rank came: its "
    "kernel's duration less the shortest of all ranks",
    "caused_ms": "wait of the other ranks, their mean, for this one in the collectives that it was the last to reach",
    "last_in": "number of collectives that it was the last to reach",
}
_COMPARED = {
    "name": "kernel, or operator where no kernel was traced",
    "calls_a": "how often it ran in the first; per step where both have torch.profiler's steps",
    "calls_b": "how often it ran in the second",
    "ms_a": "time in it, of the first: all calls together, per step where both have steps",
    "ms_b": "time in it, of the second",
    "change_ms": "ms_b - ms_a",
    "change_pct": "100 change_ms / ms_a; NaN for what the first has not",
}
_OF_WINDOWS = ("gpu", "idle_gaps", "breakdown", "ops_by_name")
_BY_NAME = {
    "name": "kernel or copy, or the host's call",
    "calls": "how often it ran",
    "total_ns": "time in it, all calls together",
    "share_pct": "of the time of all rows",
    "mean_ns": "time of a call",
}


def analyse_trace(found: Imported) -> dict[str, pd.DataFrame]:
    """Analyse one trace: its kernels or, if there are none, its operators; no tables for an empty trace."""
    tables = found.tables
    results = {}
    if found.windows:
        api = tables["api"].head(0) if tables["api"].attrs.get("clock_offset_ns") else tables["api"]
        ranges = tables["markers"][tables["markers"]["t1_ns"] > tables["markers"]["t0_ns"]]
        results = analyse({**tables, "api": api}, found.windows, ranges if len(ranges) else None)
        if "kernels_by_span" in results:
            results["kernels_by_range"] = results.pop("kernels_by_span")
    results |= summed(tables)
    ops = tables.get("ops")
    if ops is None:
        return _titled(found, results)
    markers = tables["markers"]
    of_ops = analyse_operators(ops, found.windows, data_waits(markers), updates(markers, ops))
    if "gpu" in results:
        of_ops.pop("breakdown", None)
    return _titled(found, results | of_ops)


def summed(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Sum the host's calls by function, copies by direction and ranges by name; those that a trace has."""
    made = {
        "calls_by_name": by_call(tables["api"]),
        "copies": by_copy(tables["memops"]),
        "ranges": by_range(tables["markers"]),
    }
    return {name: table for name, table in made.items() if len(table)}


def _titled(found: Imported, results: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Say for each table whether it is of the windows or of the whole file: they differ where steps were recorded."""
    if "steps" in found.tables:
        for name, table in results.items():
            table.attrs["of"] = f"the {len(found.windows)} steps" if name in _OF_WINDOWS else "the whole trace"
    return results


def data_waits(markers: pd.DataFrame) -> list[tuple[int, int]]:
    """List (begin, end) of each wait for a DataLoader, from torch.profiler's own ranges."""
    waits = markers[markers["name"].astype(str).str.match(_DATA)]
    return [*zip(waits["t0_ns"].tolist(), waits["t1_ns"].tolist(), strict=True)]


def updates(markers: pd.DataFrame, ops: pd.DataFrame) -> list[tuple[int, int]]:
    """List (begin, end) of each optimizer's update, from torch.profiler's own ranges, disjoint.

    A step that calls a closure has gradients computed in it: only what comes after the last of them is surely update.
    """
    steps = markers[markers["name"].astype(str).str.match(_UPDATE)].sort_values("t0_ns")
    backward = ops[ops["name"].astype(str).str.startswith("autograd::engine")]
    begins, ends = backward["t0_ns"].to_numpy(), backward["t1_ns"].to_numpy()
    found: list[tuple[int, int]] = []
    for t0, t1 in zip(steps["t0_ns"].tolist(), steps["t1_ns"].tolist(), strict=True):
        if not found or t0 >= found[-1][1]:  # of steps inside of each other the outer one
            inside = ends[(begins >= t0) & (begins < t1)]
            found.append((int(inside.max(initial=t0)), t1))
    return [(t0, t1) for t0, t1 in found if t1 > t0]


@dataclass(frozen=True)
class Ranks:
    """Traces of several ranks.

    Attributes:
        table: a row for each rank.
        tables: the tables of all ranks by name, with a column `rank`.
        straggler: the rank that the others wait for; None if they wait less than 1 % of the time.
        verdict: a sentence that says so.
    """

    table: pd.DataFrame
    tables: dict[str, pd.DataFrame]
    straggler: int | None
    verdict: str


def merge_ranks(traces: Sequence[Imported]) -> Ranks:
    """Join traces of the ranks of one run. Clocks of different machines need not agree: durations are compared.

    A collective ends for all ranks at once: the rank whose kernel is shortest came last; the others waited.

    Raises:
        InvalidArgument: fewer than two traces, one that is no trace, or two of one rank.
    """
    _check(traces)
    numbers = _numbers(traces)
    order = np.argsort(numbers)
    traces, numbers = [traces[i] for i in order], [numbers[i] for i in order]
    waits = _waits(traces, numbers)
    rows = [
        {"rank": rank, "file": str(trace.path), **_of_rank(trace), **waits.get(rank, {})}
        for rank, trace in zip(numbers, traces, strict=True)
    ]
    table = define(pd.DataFrame(rows, columns=list(_RANKS)), _RANKS)
    straggler, verdict = _judge(table)
    tables = {
        name: pd.concat(
            [trace.tables[name].assign(rank=rank) for rank, trace in zip(numbers, traces, strict=True)
             if name in trace.tables],
            ignore_index=True,
        )
        for name in dict.fromkeys(name for trace in traces for name in trace.tables)
    }  # fmt: skip
    return Ranks(table, tables, straggler, verdict)


def _check(traces: Sequence[Imported]) -> None:
    odd = next((trace for trace in traces if trace.kind not in TRACES), None)
    if odd is not None:
        raise InvalidArgument(f"{odd.path} is a file of {odd.kind}: ranks are merged of traces ({', '.join(TRACES)})")
    if len(traces) < 2:
        raise InvalidArgument("one trace: ranks are merged of two or more")


def _numbers(traces: Sequence[Imported]) -> list[int]:
    """Return each file's rank: by the trace, else by the file's name, else by the order of files."""
    named: list[int | None] = [trace.tables["kernels"].attrs.get("about", {}).get("rank") for trace in traces]
    if None in named or len({*named}) < len(named):
        by_name = [re.search(r"rank[-_ ]?(\d+)", trace.path.name, re.IGNORECASE) for trace in traces]
        named = [int(found[1]) if found else None for found in by_name]
    known = [rank for rank in named if rank is not None]
    if len(known) < len(traces):
        return [*range(len(traces))]
    if len({*known}) < len(known):
        twice = next(rank for rank in known if known.count(rank) > 1)
        raise InvalidArgument(f"two of the traces are of rank {twice}: give one of each")
    return known


def _of_rank(trace: Imported) -> dict[str, float]:
    windows = intervals.of_windows(trace.windows)
    kernels = trace.tables["kernels"]
    is_communication = (kernels["class"] == "communication").to_numpy(bool)
    work = kernels if len(kernels) else trace.tables.get("ops", kernels)
    is_other = ~is_communication if len(kernels) else np.ones(len(work), bool)

    def inside_ms(table: pd.DataFrame, mask: Any) -> float:
        times = intervals.union(table["t0_ns"].to_numpy()[mask], table["t1_ns"].to_numpy()[mask])
        return intervals.length_ns(intervals.intersect(times, windows)) / 1e6

    return {
        "span_ms": intervals.length_ns(windows) / 1e6,
        "compute_ms": inside_ms(work, is_other),
        "communication_ms": inside_ms(kernels, is_communication),
    }


def _waits(traces: Sequence[Imported], numbers: Sequence[int]) -> dict[int, dict[str, float]]:
    """List each rank's waits, those it caused, and how often it came last; empty without common collectives."""
    columns = {}
    for rank, trace in zip(numbers, traces, strict=True):
        kernels = trace.tables["kernels"]
        names = kernels["name"].astype(str)
        shared = kernels[kernels["class"] == "communication"]
        collective = shared[~names[shared.index].str.contains(_PAIRWISE)]
        mine = collective if len(collective) else shared  # an all-to-all is sends and receives, too
        keys = mine["name"].astype(str)
        which = keys.groupby(keys).cumcount()
        durations = (mine["t1_ns"] - mine["t0_ns"]).to_numpy()
        columns[rank] = pd.Series(durations, index=pd.MultiIndex.from_arrays([keys, which]))
    matched = pd.DataFrame(columns).dropna()
    if matched.empty:
        return {}
    waits = matched.sub(matched.min(axis=1), axis=0) / 1e6
    last = waits.idxmin(axis=1)
    of_others = waits.sum(axis=1) / (len(numbers) - 1)
    return {
        rank: {
            "waited_ms": float(waits[rank].sum()),
            "caused_ms": float(of_others[last == rank].sum()),
            "last_in": int((last == rank).sum()),
        }
        for rank in numbers
    }


def _judge(table: pd.DataFrame) -> tuple[int | None, str]:
    span = float(table["span_ms"].mean())
    if table["caused_ms"].notna().any():
        worst = table.iloc[int(np.nanargmax(table["caused_ms"]))]
        rank, caused = int(worst["rank"]), float(worst["caused_ms"])
        share = 100 * caused / span if span else 0.0
        if share < _LEAST_WAIT_PCT:
            return None, f"no straggler: ranks wait for each other {share:.1f} % of the time"
        return rank, (
            f"rank {rank} is the straggler: the others wait {caused:.3g} ms for it, {share:.1f} % of the time; it "
            f"comes last in {int(worst['last_in'])} of {int(table['last_in'].sum())} collectives"
        )
    median, worst = float(table["compute_ms"].median()), table.iloc[int(np.argmax(table["compute_ms"]))]
    more = 100 * (float(worst["compute_ms"]) / median - 1) if median else 0.0
    if more < _LEAST_WAIT_PCT:
        return None, "no straggler: no collectives in the traces, and all ranks compute equally long"
    rank = int(worst["rank"])
    return rank, f"rank {rank} computes {more:.1f} % longer than the median; no collectives are in all traces"


def compare_traces(first: Imported, second: Imported) -> pd.DataFrame:
    """Compare the time of each kernel in two traces, or files of launches (ncu, nvprof, nsys-stats), largest change
    first.

    Raises:
        InvalidArgument: a file without times of kernels or operators, or one of kernels and one of operators.
    """
    kinds, tables = zip(*map(_times, (first, second)), strict=True)
    if kinds[0] != kinds[1]:
        raise InvalidArgument(f"{first.path} has {kinds[0]}, {second.path} has {kinds[1]}: they cannot be compared")
    steps = [len(each.tables["steps"]) if "steps" in each.tables else 0 for each in (first, second)]
    per = steps if all(steps) else [1, 1]
    sides = [table.set_index("name") / count for table, count in zip(tables, per, strict=True)]
    joined = sides[0].add_suffix("_a").join(sides[1].add_suffix("_b"), how="outer").fillna(0.0).reset_index()
    found = pd.DataFrame({
        "name": joined["name"], "calls_a": joined["calls_a"], "calls_b": joined["calls_b"],
        "ms_a": joined["ns_a"] / 1e6, "ms_b": joined["ns_b"] / 1e6,
    })  # fmt: skip
    found["change_ms"] = found["ms_b"] - found["ms_a"]
    found["change_pct"] = 100 * found["change_ms"] / found["ms_a"].where(found["ms_a"] > 0)
    order = np.lexsort((-found["change_ms"], -found["change_ms"].abs().round(9)))
    return define(found.iloc[order].reset_index(drop=True), _COMPARED)


def by_name(found: Imported) -> dict[str, pd.DataFrame]:
    """Sum the time of each kernel, and of each of the host's calls, in a file of launches (ncu, nvprof, nsys-stats).

    Returns:
        `kernels_by_name` and `calls_by_name`, the longest altogether first, and `unified_memory`; those that the file
        has.
    """
    sums = {}
    with suppress(InvalidArgument):
        sums["kernels_by_name"] = _times(found)[1]
    calls = found.tables.get("api")
    if calls is not None and len(calls):
        sums["calls_by_name"] = _weighted(calls)
    found_sums = {name: _shares(table) for name, table in sums.items() if len(table)}
    pages = found.tables.get("unified")
    if pages is not None and len(pages):
        counted = pages.groupby("name", sort=False)[["count", "bytes", "duration_ns"]].sum(min_count=1)
        found_sums["unified_memory"] = define(counted.reset_index(), definitions(pages))
    return found_sums


def _weighted(rows: pd.DataFrame) -> pd.DataFrame:
    """Sums over rows of several calls each, of which durations are means: name, calls, ns."""
    known = rows.dropna(subset=["duration_ns"])
    name = nvprof.without_launch(known["name"])
    weighted = known.assign(name=name, ns=known["duration_ns"] * known["calls"])
    return weighted.groupby("name", sort=False)[["calls", "ns"]].sum().reset_index()


def _shares(sums: pd.DataFrame) -> pd.DataFrame:
    total = float(sums["ns"].sum())
    made = sums.rename(columns={"ns": "total_ns"}).sort_values("total_ns", ascending=False, kind="stable")
    made["share_pct"] = 100 * made["total_ns"] / (total or 1.0)
    made["mean_ns"] = made["total_ns"] / made["calls"]
    return define(made.reset_index(drop=True)[list(_BY_NAME)], _BY_NAME)


def _times(found: Imported) -> tuple[str, pd.DataFrame]:
    """Return ("kernels" or "operators", table of name, calls, ns) of one file."""
    tables = found.tables
    if found.kind in TRACES and len(tables["kernels"]):
        return "kernels", _sums(tables["kernels"].assign(ns=tables["kernels"]["t1_ns"] - tables["kernels"]["t0_ns"]))
    if len(tables.get("ops", ())):
        return "operators", _sums(tables["ops"].assign(ns=tables["ops"]["self_ns"]))
    if "launches" in tables and tables["launches"]["duration_ns"].notna().any():
        return "kernels", _weighted(tables["launches"])
    if found.kind == "ncu":
        durations = tables["metrics"][tables["metrics"]["metric"].isin(["gpu__time_duration.sum", "Duration"])]
        if len(durations):
            once = durations.drop_duplicates("kernel_id").rename(columns={"value": "ns"})
            return "kernels", _sums(pd.DataFrame(once[["name", "ns"]]))
    raise InvalidArgument(f"{found.path} has no times of kernels or operators")


def _sums(rows: pd.DataFrame) -> pd.DataFrame:
    found = rows.assign(name=rows["name"].astype(str)).groupby("name", sort=False)["ns"].agg(["count", "sum"])
    return found.reset_index().set_axis(["name", "calls", "ns"], axis=1)
