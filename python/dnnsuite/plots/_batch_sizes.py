# SPDX-License-Identifier: MIT
"""Figures of two panels: rate and memory over batch sizes, rate and efficiency over processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidArgument
from ._style import MARKERS, axes_or_new

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_MIB = 2.0**20


def batch_sizes(summary: pd.DataFrame, ax: Axes | None = None, memory: Axes | None = None) -> Axes:
    """Draw the rate over the batch size with its 95 % interval, and mark the knee; sizes that failed are crosses.

    Args:
        summary: table from :func:`dnnsuite.results.by_batch_size`; a curve for each job, device, mode, precision and B.
        ax: axes to draw on; those of a new figure by default.
        memory: axes for the peak memory; None draws none.

    Raises:
        InvalidArgument: no size was measured.
    """
    if not (summary["rate"] > 0).any():
        raise InvalidArgument("nothing to draw: no batch size was measured")
    ax = axes_or_new(ax)
    curves = list(summary.groupby(["job", "device", "mode", "precision", "B"], sort=False))
    for index, (key, curve) in enumerate(curves):
        name = f"{key[0]} {key[3]} on {key[1]}" + (f", B={key[4]}" if key[2] == "hfta" else "")
        _draw(ax, memory, curve, name, MARKERS[index % len(MARKERS)])
    _axis(ax, summary)
    ax.set_ylabel(" or ".join(dict.fromkeys(summary["unit"])))
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small")
    if memory is not None:
        _axis(memory, summary)
        memory.set_ylabel("Peak memory (MiB)")
        memory.set_ylim(0, 1.15 * summary["peak_memory_bytes"].max() / _MIB)
    return ax


def _axis(ax: Axes, summary: pd.DataFrame) -> None:
    sizes = sorted(set(summary["batch_size"]))
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.minorticks_off()
    ax.set_xlabel("Batch size")
    ax.grid(alpha=0.3)


def _draw(ax: Axes, memory: Axes | None, curve: pd.DataFrame, name: str, marker: str) -> None:
    good = curve[curve["rate"] > 0]
    rate = good["rate"].to_numpy(float)
    ends = good[["rate_low", "rate_high"]].to_numpy(float).T
    spread: Any = np.nan_to_num(np.abs(ends - rate))
    (line, *_) = ax.errorbar(good["batch_size"], rate, yerr=spread, marker=marker, markersize=4, capsize=3, label=name)
    for at in good.loc[good["knee"], "batch_size"]:
        ax.axvline(at, color=line.get_color(), linestyle=":", label=f"knee at {at}")
    bad = curve[~(curve["rate"] > 0)]
    if len(bad):
        what = ", ".join(dict.fromkeys(bad["status"]))
        ax.plot(bad["batch_size"], [0] * len(bad), "x", color="tab:red", clip_on=False, label=what)
    if memory is not None:
        memory.plot(
            good["batch_size"], good["peak_memory_bytes"] / _MIB, marker=marker, markersize=4, color=line.get_color()
        )


def weak_scaling(table: pd.DataFrame, ax: Axes | None = None, efficiency: Axes | None = None) -> Axes:
    """Draw total throughput over the number of processes with its interval, and the ideal line of each curve.

    Args:
        table: table from :func:`dnnsuite.results.weak_scaling`.
        ax: axes to draw on; those of a new figure by default.
        efficiency: axes for the efficiency; None draws none.
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
