# SPDX-License-Identifier: MIT
"""Breakdown of the observed steps' time into shares that sum to 100 %: pure arithmetic on tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .._lazy import npt
from .._lazy import numpy as np
from .._lazy import pandas as pd
from ._windows import LoopStep
from .instrument import define

FRAME = "frame"

CLASSES = {
    "gemm": "matrix products: linear layers, projections",
    "attention": "fused scaled-dot-product attention",
    "conv": "convolutions",
    "recurrence": "LSTM, GRU and RNN layers",
    "norm": "batch, layer, group and RMS normalisation",
    "pooling": "pooling and resampling",
    "embedding": "look-ups by index",
    "softmax": "softmax, within attention or before a loss",
    "loss": "losses",
    "reduction": "sums, means, norms of vectors (clipping), extrema, sorting, scans",
    "elementwise": "element by element: activations, additions, masks",
    "random": "dropout and random numbers",
    "copy": "copies, casts, transposes to memory, concatenation, gathering",
    "fft": "Fourier transforms, but those of a convolution",
    "linalg": "decompositions, solutions and inverses of matrices",
    "compiled": "graphs that torch.compile generated, fused from operators of several classes",
    "custom": "operators of extensions and torch.library, and the code of autograd functions of one's own",
    "communication": "messages between processes while nothing is computed (exposed)",
    "optimizer": "an optimizer's step, without the closure that it calls",
    "views": "views and allocation: nothing is computed",
    FRAME: "calls around operators, as autograd's nodes and annotations: their own time is Python and dispatch",
    "other": "work whose name no rule knows",
}
TRANSPARENT = ("view", "alloc", FRAME)
"""What computes nothing itself; its time counts for its caller."""
_SAME = {
    "comm": "communication",
    "rnn": "recurrence",
    "pool": "pooling",
    "sort": "reduction",
    "view": "views",
    "alloc": "views",
}


def meaning(kind: str) -> tuple[str, str]:
    """Return (class under which `kind` is reported, its definition)."""
    name = _SAME.get(kind, kind)
    return (name, CLASSES[name]) if name in CLASSES else (name, f"work of class {name}")


if TYPE_CHECKING:
    Int64s = npt.NDArray[np.int64]

REMARK = (
    "An operator counts for the innermost active class; an instant with several active classes, in several threads "
    "or streams, is split between them. What was recorded is never host or idle."
)
DEFINITIONS = {
    "data wait": "the loop is in its data loader, and nothing is computed elsewhere",
    **CLASSES,
    "host": "no operator (on a GPU: no kernel) runs and the loop's thread is on a CPU: Python, dispatch, launches",
    "idle": "no operator runs and the loop's thread is off the CPU: it sleeps, waits, or other work has the CPU",
}

COLUMNS = {
    "class": "class of the time; each row's `definition` says how it is recognised",
    "ms_per_step": "mean over the observed steps",
    "share_pct": "of the wall time of the observed steps; the rows sum to 100",
    "definition": "how the class is recognised",
}


class Segment(NamedTuple):
    """Interval of one thread's or stream's time, of one class."""

    t0_ns: int
    t1_ns: int
    kind: str


def op_segments(ops: pd.DataFrame, optimizer: Sequence[tuple[int, int]] = ()) -> list[Segment]:
    """Find the innermost class at each instant, per thread, from nested intervals (columns class, thread, t0_ns,
    t1_ns, and perhaps phase). Work of phase optimizer, or inside the loop's `optimizer` intervals, gets that class.
    """
    segments: list[Segment] = []
    for _, table in ops.groupby("thread", sort=False):
        ordered = table.sort_values(["t0_ns", "t1_ns"], ascending=[True, False], kind="stable")
        kinds = ordered["class"].astype(str)
        if "phase" in ordered:
            updates = (ordered["phase"] == "optimizer") & ~kinds.isin([FRAME, "communication"])
            kinds = kinds.where(~updates, "optimizer")
        rows = zip(kinds, ordered["t0_ns"], ordered["t1_ns"], strict=True)
        segments += _innermost((kind, int(t0), int(t1)) for kind, t0, t1 in rows)
    return _relabelled(segments, optimizer, "optimizer")


def _innermost(rows: Iterable[tuple[str, int, int]]) -> Iterator[Segment]:
    """Yield segments of one thread's nested intervals, which are ordered by begin, outermost first."""
    stack: list[tuple[int, str | None]] = []  # (end, class) of what is open; a class of None is nobody's
    at = 0
    for kind, t0_ns, t1_ns in rows:
        while stack and stack[-1][0] <= t0_ns:
            yield from _piece(at, stack[-1])
            at = max(at, stack.pop()[0])
        if kind == "communication" and stack and t1_ns > stack[-1][0]:  # it goes on after the call that began it
            yield Segment(t0_ns, t1_ns, kind)
            continue
        if stack:
            yield from _piece(at, (t0_ns, stack[-1][1]))
        own = stack[-1][1] if stack else None
        if kind not in TRANSPARENT and own != "optimizer":
            own = meaning(kind)[0]
        if own is None and kind != FRAME:
            own = meaning(kind)[0]
        end = min(t1_ns, stack[-1][0]) if stack else t1_ns
        stack.append((end, own))
        at = t0_ns
    while stack:
        yield from _piece(at, stack[-1])
        at = max(at, stack.pop()[0])


def _piece(t0_ns: int, end: tuple[int, str | None]) -> Iterator[Segment]:
    t1_ns, kind = end
    if kind is not None and t1_ns > t0_ns:
        yield Segment(t0_ns, t1_ns, kind)


def _relabelled(segments: list[Segment], spans: Sequence[tuple[int, int]], kind: str) -> list[Segment]:
    """Set the class of segments that begin inside one of the sorted, disjoint `spans` to `kind`."""
    if not spans or not segments:
        return segments
    begins, ends = np.array(spans, dtype=np.int64).T
    at = np.array([segment.t0_ns for segment in segments], dtype=np.int64)
    which = np.searchsorted(begins, at, side="right") - 1
    inside = (which >= 0) & (at < ends[which])
    return [
        s._replace(kind=kind) if hit and s.kind != "communication" else s
        for s, hit in zip(segments, inside, strict=True)
    ]


def breakdown(
    steps: Sequence[LoopStep], phases: pd.DataFrame | None, work: Sequence[Segment], local: Sequence[Segment] = ()
) -> pd.DataFrame:
    """Compute shares of the wall time of `steps`: columns :data:`COLUMNS`, largest first.

    Args:
        steps: observed steps; time between them (opening and closing windows) is not counted.
        phases: table `phases` of the thread that runs the loop.
        work: segments of computation, of all threads or of the device.
        local: part of `work` in the loop's thread; inside a data wait it counts as part of that wait.
    """
    shares = _times(steps, phases, work, local)
    total = sum(step.t1_ns - step.t0_ns for step in steps)
    table = pd.DataFrame(
        [
            (name, ns / 1e6 / len(steps), 100 * ns / total, DEFINITIONS.get(name) or meaning(name)[1])
            for name, ns in sorted(shares.items(), key=lambda item: -item[1])
            if ns > 0
        ],
        columns=list(COLUMNS),
    )
    return define(table, COLUMNS)


def _times(
    steps: Sequence[LoopStep], phases: pd.DataFrame | None, work: Sequence[Segment], local: Sequence[Segment]
) -> Mapping[str, float]:
    none: dict[str, list[int]] = {"phase": [], "t0_ns": [], "t1_ns": [], "cpu_ns": []}
    own = phases if phases is not None else pd.DataFrame(none).astype({"t0_ns": "int64"})
    data = [(int(a), int(b)) for a, b in own.loc[own["phase"] == "data", ["t0_ns", "t1_ns"]].to_numpy()]
    kinds = sorted({segment.kind for segment in work})
    pieces = [piece for step in steps for piece in _pieces(step, own)]
    displaced = min(1.0, sum(step.displaced_ns for step in steps) / max(1, sum(piece.off_ns for piece in pieces)))
    covers = [[(s.t0_ns, s.t1_ns) for s in work if s.kind == kind] for kind in kinds]
    edges = _edges([*covers, data, [(s.t0_ns, s.t1_ns) for s in steps], [(p.t0_ns, p.t1_ns) for p in pieces]])
    lengths = np.diff(edges)
    inside = _count(edges, [(s.t0_ns, s.t1_ns) for s in steps]) > 0
    at_work = np.array([_count(edges, cover) for cover in covers]).reshape(len(kinds), len(lengths))
    in_loop = _count(edges, [(s.t0_ns, s.t1_ns) for s in local])
    elsewhere = at_work.sum(axis=0) - in_loop
    waiting = inside & (_count(edges, data) > 0) & (elsewhere <= 0)
    weight = (at_work > 0).astype(np.float64)
    if "communication" in kinds:
        index = kinds.index("communication")
        weight[index] *= np.delete(weight, index, axis=0).sum(axis=0) == 0  # hidden behind computation
    busy = weight.sum(axis=0)
    gap = inside & ~waiting & (busy == 0)
    weight *= np.where(inside & ~waiting & (busy > 0), lengths / np.maximum(busy, 1), 0.0)
    times = dict(zip(kinds, weight.sum(axis=1), strict=True))
    times["data wait"] = float(lengths[waiting].sum())
    # On CPUs the loop's thread waits while others work for it; a GPU works while the loop goes on.
    others = np.where((in_loop == 0) & (elsewhere > 0) & bool(local), lengths, 0)
    times["idle"], times["host"] = _idle_and_host(pieces, edges, np.where(gap, lengths, 0), others, displaced)
    return times


class _Piece(NamedTuple):
    """Phase of a step, or interval between two, with the time in it that the loop's thread was off the CPU."""

    t0_ns: int
    t1_ns: int
    off_ns: int


def _pieces(step: LoopStep, phases: pd.DataFrame) -> Iterator[_Piece]:
    """Yield the phases of a step, and the intervals between them."""
    rows = phases[(phases["t0_ns"] >= step.t0_ns) & (phases["t1_ns"] <= step.t1_ns)]
    at, cpu_left, gaps = step.t0_ns, step.thread_cpu_ns, []
    for t0, t1, cpu in rows[["t0_ns", "t1_ns", "cpu_ns"]].to_numpy(np.int64):
        yield _Piece(int(t0), int(t1), max(0, int(t1 - t0 - cpu)))
        gaps.append((at, int(t0)))
        at, cpu_left = int(t1), cpu_left - int(cpu)
    gaps.append((at, step.t1_ns))
    between = sum(t1 - t0 for t0, t1 in gaps)
    off = max(0, between - max(0, cpu_left))
    for t0, t1 in gaps:  # between phases there is one reading of the CPU time: shared out by length
        yield _Piece(t0, t1, round(off * (t1 - t0) / between) if between else 0)


def _idle_and_host(
    pieces: Sequence[_Piece], edges: Int64s, gaps: Int64s, others: Int64s, displaced: float
) -> tuple[float, float]:
    """Return the time of the gaps in which the loop's thread was off the CPU, and in which it was on one.

    Args:
        gaps: time of each interval between two edges in which nothing works.
        others: time in which only other threads do, for which the loop's waits.
        displaced: share of the time off the CPU in which the thread was ready: it loses it at any time, also in work.
    """
    sums = [np.concatenate([[0], np.cumsum(each)]) for each in (gaps, others)]
    idle = 0.0
    for piece in pieces:
        first, last = np.searchsorted(edges, [piece.t0_ns, piece.t1_ns])
        gap, waited = (float(each[last] - each[first]) for each in sums)
        length = max(1, piece.t1_ns - piece.t0_ns)
        by_others = displaced * piece.off_ns
        idle += min(gap, max(0.0, piece.off_ns - by_others - waited) + by_others * gap / length)
    return idle, float(gaps.sum()) - idle


def _edges(covers: Iterable[Sequence[tuple[int, int]]]) -> Int64s:
    found = [np.array(cover, dtype=np.int64).ravel() for cover in covers if cover]
    return np.unique(np.concatenate(found))


def _count(edges: Int64s, cover: Sequence[tuple[int, int]]) -> Int64s:
    """Count the intervals of `cover` over each interval between two edges."""
    change = np.zeros(len(edges), dtype=np.int64)
    if cover:
        begins, ends = np.array(cover, dtype=np.int64).T
        np.add.at(change, np.searchsorted(edges, begins), 1)
        np.add.at(change, np.searchsorted(edges, ends), -1)
    return np.cumsum(change)[:-1]
