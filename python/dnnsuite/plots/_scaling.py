# SPDX-License-Identifier: MIT
"""Weak scaling of training runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._style import MARKERS, axes_or_new

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def weak_scaling(table: pd.DataFrame, ax: Axes | None = None, efficiency: Axes | None = None) -> Axes:
    """Draw total throughput over the number of processes with its interval, and the ideal line of each curve.

    Args:
        table: table from :func:`dnnsuite.results.weak_scaling`.
        ax: axes to draw on; those of a new figure by default.
        efficiency: axes for the part of the ideal that is reached; None draws none.
    """
    ax = axes_or_new(ax)
    groups = list(table.groupby(["device", "precision", "B", "batch_per_process"], sort=False))
    for index, ((_, precision, models, batch), curve) in enumerate(groups):
        label = f"{precision}, batch {batch} each" + (f", B={models}" if models != 1 else "")
        style: Any = {"marker": MARKERS[index % len(MARKERS)], "linestyle": "", "markersize": 5, "capsize": 3}
        sizes = curve["processes"].to_numpy(float)
        color = f"C{index}"
        ax.errorbar(sizes, curve["rate"], yerr=_spread(curve, "rate"), color=color, label=label, **style)
        ends = np.array([0.0, sizes.max()])
        ax.plot(ends, ends * (curve["ideal"] / curve["processes"]).iloc[0], "k--", linewidth=1, label="ideal")
        if efficiency is not None:
            percent = 100 * curve[["efficiency", "efficiency_low", "efficiency_high"]]
            efficiency.errorbar(
                sizes, percent["efficiency"], yerr=_spread(percent, "efficiency"), color=color, label=label, **style
            )
    what = "GPUs" if set(table["device"]) == {"cuda"} else "processes"
    ax.set_title("Weak scaling training throughput")
    ax.set_ylabel(f"Training throughput ({table['unit'].iloc[0]})")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small")
    for each in (ax, efficiency):
        if each is not None:
            each.set_xlabel(f"Number of {what}")
            each.set_xlim(left=0)
            each.set_xticks(sorted(set(table["processes"])))
            each.grid(alpha=0.3)
    if efficiency is not None:
        efficiency.axhline(100, color="black", linestyle="--", linewidth=1)
        efficiency.set_ylabel("Efficiency (% of the ideal)")
        efficiency.set_ylim(0, max(110, 110 * table["efficiency"].max()))
    return ax


def _spread(curve: pd.DataFrame, name: str) -> Any:
    """Distances of an interval's ends from the values; 0 where it is not known."""
    value = curve[name].to_numpy(float)
    ends = curve[[f"{name}_low", f"{name}_high"]].to_numpy(float).T
    return np.nan_to_num(np.abs(ends - value))
