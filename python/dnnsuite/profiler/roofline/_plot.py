# SPDX-License-Identifier: MIT
"""Figure of the roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._lazy import pandas as pd
from ._model import attainable_flops_per_s
from .peaks import Peaks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"gemm": "tab:blue", "conv": "tab:orange", "attention": "tab:green", "recurrence": "tab:red"}
_NAMED = 6  # operators that are named in the figure
_APART = 1.5


def draw(peaks: Peaks, table: pd.DataFrame | None = None, ax: Axes | None = None, lanes: int = 1) -> Axes:
    """Draw FLOP/s over arithmetic intensity: the peaks, and the operators of `table` (`Roofline.table`) with FLOPs.

    A point's area is the time in the operator. With several `lanes`, points are of all lanes together.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, 4.0))[1]
    top, memory = max(peaks.flops_per_s.values()), peaks.bytes_per_s["memory"]
    low, high = 1 / 16, 16 * top / memory
    points = table[table["flops"] > 0] if table is not None else None
    if points is not None and not points.empty:
        low, high = min(low, points["intensity"].min() / 2), max(high, 2 * points["intensity"].max())
    _roofs(ax, peaks, low, high)
    if points is not None and not points.empty:
        _points(ax, points, lanes)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_xlabel("Arithmetic intensity (FLOP/byte of inputs and outputs)")
    ax.set_ylabel("FLOP/s")
    ax.grid(alpha=0.3, which="both")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    return ax


def _roofs(ax: Axes, peaks: Peaks, low: float, high: float) -> None:
    best = max(peaks.flops_per_s.values())
    for (precision, peak), style in zip(peaks.flops_per_s.items(), ("-", "--"), strict=False):
        ax.axhline(peak, color="black", linestyle=style, label=f"{precision} {peak / 1e9:.0f} GFLOP/s")
    for i, (level, bandwidth) in enumerate(peaks.bytes_per_s.items()):
        xs = [low, min(best / bandwidth, high)]
        ys = [attainable_flops_per_s(x, best, bandwidth) for x in xs]
        grey = str(0.7 - 0.6 * i / max(1, len(peaks.bytes_per_s) - 1))
        ax.plot(xs, ys, color=grey, label=f"{level} {bandwidth / 1e9:.0f} GB/s")


def _points(ax: Axes, points: pd.DataFrame, lanes: int) -> None:
    largest = float(points["time_s"].max())
    for kind, group in points.groupby("class", observed=True):
        sizes = [20 + 180 * seconds / largest for seconds in group["time_s"].tolist()]
        colour = _COLOURS.get(str(kind), "tab:gray")
        rates = (lanes * group["flops_per_s"]).tolist()
        ax.scatter(group["intensity"].tolist(), rates, s=sizes, alpha=0.7, color=colour, label=str(kind))
    named: list[tuple[float, float]] = []
    rows: list[dict[str, Any]] = points.head(_NAMED).to_dict("records")  # type: ignore[assignment]
    for row in rows:
        x, y = row["intensity"], lanes * row["flops_per_s"]
        if any(max(x / a, a / x) < _APART and max(y / b, b / y) < _APART for a, b in named):
            continue  # its name would lie over another
        named.append((x, y))
        text = f"{row['name'].partition('::')[2]} ({row['phase']})"
        ax.annotate(text, (x, y), fontsize="x-small", xytext=(4, 4), textcoords="offset points")
