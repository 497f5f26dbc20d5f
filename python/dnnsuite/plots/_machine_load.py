# SPDX-License-Identifier: MIT
"""Quantities of `monitor.csv` over B, and by job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument
from ._style import COLOURS, HEADROOM, LINES, MARKERS, axes_or_new

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_UNITS = {"bytes": (1e9, "GB"), "bytes/s": (1e9, "GB/s"), "Hz": (1e9, "GHz")}  # (in ours, on an axis)


def machine_load(summary: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw one quantity of the machine's load over B, a curve per mode and precision; for a suite, by job.

    Args:
        summary: rows of one quantity from :func:`dnnsuite.results.summarize_monitors`.
        ax: axes to draw on; those of a new figure by default.

    Lines between markers guide the eye. Bands and bars are the 95 % intervals over repeats.

    Raises:
        InvalidArgument: there are no rows, or rows of several quantities.
    """
    named = summary[["of", "metric", "unit"]].drop_duplicates()
    if len(named) != 1:
        raise InvalidArgument(f"{len(named)} quantities for one figure: pass the rows of one")
    of, metric, unit = named.iloc[0]
    scale, unit = _UNITS.get(unit, (1.0, unit))
    scaled = summary.assign(**{name: summary[name] / scale for name in ("mean", "low", "high")})
    ax = axes_or_new(ax)
    draw = _load_over_B if scaled["B"].nunique() > 1 else _load_by_row
    draw(ax, scaled, f"{of} {metric} ({unit})")
    ax.grid(alpha=0.3)
    return ax


def _load_over_B(ax: Axes, summary: pd.DataFrame, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    jobs = list(dict.fromkeys(summary["job"]))
    for (job, mode, precision), curve in summary.groupby(["job", "mode", "precision"], sort=False):
        curve = curve.sort_values("B")
        style: Any = {"color": COLOURS.get(str(mode), "tab:gray"), "linestyle": LINES.get(str(precision), "-.")}
        name = f"{job} " if len(jobs) > 1 else ""
        marker = MARKERS[jobs.index(job) % len(MARKERS)]
        if mode == "serial":
            ax.axhline(curve["mean"].iloc[0], label=f"{name}{mode} {precision}", **style)
            continue
        ax.plot(curve["B"], curve["mean"], marker=marker, markersize=4, label=f"{name}{mode} {precision}", **style)
        ax.fill_between(curve["B"], curve["low"], curve["high"], alpha=0.3, color=style["color"], linewidth=0)
    _limit(ax.set_ylim, summary)
    ax.set_xlabel("B (models)")
    ax.set_ylabel(label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _load_by_row(ax: Axes, summary: pd.DataFrame, label: str) -> None:
    import numpy as np

    places = np.arange(len(summary))
    middle, low, high = (summary[name].to_numpy(float) for name in ("mean", "low", "high"))
    spread = [np.nan_to_num(middle - low), np.nan_to_num(high - middle)]
    ax.errorbar(middle, places, xerr=spread, fmt="o", markersize=4, capsize=3, color="tab:blue")
    cells = [
        row["job"] + ("" if row["mode"] == "shares" else f" {row['mode']} {row['precision']} B={row['B']}")
        for row in summary.to_dict("records")
    ]
    ax.set_yticks(places, cells)
    ax.invert_yaxis()
    _limit(ax.set_xlim, summary)
    ax.set_xlabel(label)


def _limit(set_limits: Callable[[float, float], object], summary: pd.DataFrame) -> None:
    """Upper limit of the axis: just above the largest mean, so that a wide interval does not flatten the curves."""
    top = float(summary["mean"].max())
    set_limits(0, HEADROOM * top if top > 0 else 1)
