# SPDX-License-Identifier: MIT
"""Tables of a profile: read from the instruments, cut to the observed steps, and derived."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .._lazy import pandas as pd
from ._breakdown import COLUMNS, Segment, breakdown, meaning, op_segments
from ._windows import LoopStep
from .activity import analyse
from .cpu import class_of, nest
from .instrument import Instrument, define, definitions

_BY_NAME = {
    "name": "the operator, as torch's dispatcher names it",
    "class": "kind of work, by the name",
    "calls_per_step": "mean over the observed steps",
    "self_ms_per_step": "time in it and not in operators that it called, mean over the observed steps",
    "self_pct": "of the self time of all operators",
}


def read(instruments: Iterable[Instrument]) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Read (tables, notes) of all instruments; tables of one name are joined. A failing instrument becomes a note."""
    parts: dict[str, list[pd.DataFrame]] = {}
    notes: list[str] = []
    for instrument in instruments:
        try:
            for name, table in instrument.tables().items():
                parts.setdefault(name, []).append(table)
            notes += [f"{instrument.name}: " + note.removeprefix(f"{instrument.name}: ") for note in instrument.notes()]
        except Exception as error:  # the other instruments' results must not be lost with it
            notes.append(f"{instrument.name}: its results cannot be read: {error!r}")
    tables = {}
    for name, each in parts.items():
        lines = {column: line for table in each for column, line in definitions(table).items()}
        filled = [table for table in each if len(table)] or each[:1]
        tables[name] = pd.concat(filled, ignore_index=True) if len(filled) > 1 else filled[0].copy()
        tables[name].attrs["definitions"] = {c: lines[c] for c in tables[name].columns if c in lines}
    return tables, notes


def within(table: pd.DataFrame, spans: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """Select the rows that began, or were sampled, inside one of the sorted `spans`; all rows of a table without
    times."""
    column = next((name for name in ("t0_ns", "t_ns") if name in table.columns), None)
    if column is None or table.empty:
        return table
    begins, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    at = table[column].to_numpy(np.int64)
    which = np.searchsorted(begins, at, side="right") - 1
    kept = table[(which >= 0) & (at < ends[which])] if len(begins) else table.iloc[:0]
    return kept.reset_index(drop=True)


def derived(active: Sequence[LoopStep], tables: dict[str, pd.DataFrame], loop_thread: int) -> dict[str, pd.DataFrame]:
    """Derive tables: `breakdown`, and the results of :func:`activity.analyse` if kernels were recorded, else
    `ops_by_name` if operators were.
    """
    phases = tables.get("phases")
    own = phases[phases["thread"] == loop_thread] if phases is not None else None
    kernels = tables.get("kernels")
    if kernels is not None and len(kernels):
        found = {"breakdown": breakdown(active, own, _device_segments(kernels, tables.get("memops")))}
        if "api" in tables:
            found |= analyse(tables, [(step.t0_ns, step.t1_ns) for step in active], phases, "phase")
        return found
    ops = tables.get("ops")
    if ops is None and kernels is None:
        return {}  # counters alone, say: nobody saw what ran
    if ops is None or ops.empty:
        return {"breakdown": breakdown(active, own, ())}
    spans = _spans(own, "optimizer")
    work = op_segments(ops, spans)
    local = op_segments(ops[(ops["thread"] == _loops_number(ops, own)) & (ops["class"] != "communication")], spans)
    return {"breakdown": breakdown(active, own, work, local), "ops_by_name": by_name(ops, len(active))}


def _loops_number(ops: pd.DataFrame, own: pd.DataFrame | None) -> int:
    """Find torch's number of the loop's thread: the thread with most operators in the loop's phases."""
    inside = ops if own is None else within(ops, sorted(_spans(own, "forward") + _spans(own, "optimizer")))
    counts = (inside if len(inside) else ops)["thread"].value_counts()
    return int(counts.index[0])


def _spans(phases: pd.DataFrame | None, name: str) -> list[tuple[int, int]]:
    if phases is None:
        return []
    rows = phases.loc[phases["phase"] == name, ["t0_ns", "t1_ns"]].to_numpy(np.int64)
    return sorted((int(t0), int(t1)) for t0, t1 in rows)


def _device_segments(kernels: pd.DataFrame, copies: pd.DataFrame | None) -> list[Segment]:
    rows = zip(kernels["t0_ns"], kernels["t1_ns"], kernels["class"], strict=True)
    segments = [Segment(int(t0), int(t1), meaning(str(kind))[0]) for t0, t1, kind in rows]
    if copies is not None and len(copies):
        moves = zip(copies["t0_ns"], copies["t1_ns"], strict=True)
        segments += [Segment(int(t0), int(t1), "copy") for t0, t1 in moves]
    return segments


def by_name(ops: pd.DataFrame, steps: int) -> pd.DataFrame:
    """Sum operators by name, most self time first; means over `steps`."""
    plain = ops[["name", "class"]].astype(str).assign(own=ops["self_ns"])
    grouped = plain.groupby(["name", "class"])["own"].agg(["size", "sum"])
    grouped = grouped.sort_values("sum", ascending=False).reset_index()
    table = pd.DataFrame(
        {
            "name": grouped["name"],
            "class": grouped["class"],
            "calls_per_step": grouped["size"] / steps,
            "self_ms_per_step": grouped["sum"] / 1e6 / steps,
            "self_pct": 100 * grouped["sum"] / max(1, grouped["sum"].sum()),
        }
    )
    return define(table, _BY_NAME)


BETWEEN = "between operators"
_BETWEEN_MEANS = "no operator runs: Python, dispatch, launches or a wait; the trace does not tell which"
_MEANINGS = {
    "t0_ns": "begin, as the trace counts",
    "t1_ns": "end",
    "name": "the operator, as torch's dispatcher names it",
    "class": "kind of work, by the name",
    "thread": "the trace's number of the thread",
    "depth": "how many operators of its thread are around it",
    "self_ns": "t1_ns - t0_ns without the operators inside it",
}

Int64s = NDArray[np.int64]


def operator_table(t0_ns: Int64s, t1_ns: Int64s, names: pd.Series, threads: Int64s) -> pd.DataFrame:
    """Make the table `ops` of operators `[N]`, in the order of their begin.

    Args:
        t0_ns, t1_ns: begin and end of each.
        names: name of each.
        threads: number of the thread of each.
    """
    nesting = nest(threads.tolist(), t0_ns.tolist(), t1_ns.tolist())
    column = names.astype("category").cat
    classes = pd.Categorical([class_of(str(name)) for name in column.categories])
    kinds = pd.Categorical.from_codes(classes.codes[column.codes.to_numpy()], classes.categories)
    table = pd.DataFrame({
        "t0_ns": t0_ns, "t1_ns": t1_ns, "name": names, "class": kinds, "thread": threads, "depth": nesting.depths,
        "self_ns": nesting.self_ns,
    })  # fmt: skip
    order = np.lexsort((-t1_ns, threads, t0_ns))
    return define(table.iloc[order].reset_index(drop=True), _MEANINGS)


def analyse_operators(
    ops: pd.DataFrame,
    windows: Sequence[tuple[int, int]],
    data: Sequence[tuple[int, int]] = (),
    optimizer: Sequence[tuple[int, int]] = (),
    loop_thread: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Sum the time of `windows`, the steps: tables `breakdown` and `ops_by_name`; none without operators.

    Args:
        ops: operators with name, class, thread, t0_ns, t1_ns, self_ns.
        windows: (begin, end) of each step, ns; disjoint.
        data: (begin, end) of waits for a DataLoader.
        optimizer: (begin, end) of an optimizer's updates, disjoint.
        loop_thread: number of the thread that runs the loop; by default the one that has most operators.
    """
    spans = sorted((begin, end) for begin, end in windows if end > begin)
    inside = within(ops, spans)
    if inside.empty:
        return {}
    steps = [LoopStep(i, "active", 0, t0, t1, t1 - t0, t1 - t0, 0) for i, (t0, t1) in enumerate(spans)]
    waits = pd.DataFrame([("data", t0, t1, t1 - t0) for t0, t1 in data], columns=["phase", "t0_ns", "t1_ns", "cpu_ns"])
    main = int(inside["thread"].mode()[0]) if loop_thread is None else loop_thread
    updates = sorted(optimizer)
    work = op_segments(inside, updates)
    local = op_segments(inside[inside["thread"] == main], updates)
    found = breakdown(steps, waits.astype({"t0_ns": "int64", "t1_ns": "int64"}), work, local)
    gaps = found["class"].isin(["host", "idle"])
    found["class"] = found["class"].where(~gaps, BETWEEN)
    found["definition"] = found["definition"].where(~gaps, _BETWEEN_MEANS)
    found = found.groupby(["class", "definition"], as_index=False)[["ms_per_step", "share_pct"]].sum()
    found = found.sort_values("share_pct", ascending=False, ignore_index=True)[list(COLUMNS)]
    return {"breakdown": define(found, COLUMNS), "ops_by_name": by_name(inside, len(steps))}
