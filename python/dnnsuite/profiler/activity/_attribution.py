# SPDX-License-Identifier: MIT
"""Attribution of kernels to phases of the step: a kernel belongs to the phase in which the host launched it.

Phases hold for the whole process, because autograd launches kernels from other threads. Nothing is synchronised for it.
Kernels of a CUDA graph belong to the phase that launched the graph.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._lazy import pandas as pd
from ...errors import InvalidArgument
from ..instrument import definitions
from .intervals import Times

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
    """Add the columns `launch_t0_ns`, `launch_t1_ns`, `launch_thread`, `queue_ns` to `work` (kernels, memops or
    graphs).

    Args:
        api: table `api` of :class:`ActivityInstrument`.
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
    """Find for each time `[N]` the row of `spans` that is open then and began last; -1 where none is.

    Of spans that began at once, the one that ends first is the inner one. A span is open from `t0_ns` up to, and
    without, `t1_ns`.
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
        spans: any table with `t0_ns`, `t1_ns` and a column `label`, and perhaps `step`: spans, phases, NVTX markers.

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
