# SPDX-License-Identifier: MIT
"""Time by operator in traces of other tools, which have no CPU times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .._lazy import pandas as pd
from ._breakdown import COLUMNS, breakdown, op_segments
from ._windows import LoopStep
from .cpu import class_of, nest
from .data import by_name, within
from .instrument import define

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
