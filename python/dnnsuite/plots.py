# SPDX-License-Identifier: MIT
"""Figures of summarised results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._files import replacing
from .errors import InvalidArgument

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["save", "throughput"]

# HFTA's colours and line styles, so that figures can be laid side by side.
_COLOURS = {"serial": "tab:red", "concurrent": "tab:green", "mps": "tab:blue", "mig": "tab:orange",
            "hfta": "tab:purple"}  # fmt: skip
_HEADROOM = 1.5
_LINES = {"fp32": "--", "bf16": "--", "amp": "-"}


def throughput(summary: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Normalised throughput over B, a curve per mode and precision.

    Args:
        summary: what :func:`dnnsuite.results.summarize` returns.
        ax: where to draw; a new figure by default.

    Serial is a level with its interval as a band, the others are lines with a marker at each measured B;
    lines between markers guide the eye. Bands are the 95 % intervals.

    Raises:
        InvalidArgument: nothing in the table is normalised (no serial fp32 run finished).
    """
    from matplotlib.ticker import MaxNLocator

    measured = summary.dropna(subset=["normalized"])
    if measured.empty:
        raise InvalidArgument(
            "nothing to draw: no run has a normalised throughput (no serial fp32 run finished)"
        )
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, 4.0))[1]
    for (mode, precision), curve in measured.groupby(["mode", "precision"], sort=False):
        style: Any = {
            "color": _COLOURS.get(str(mode), "tab:gray"),
            "linestyle": _LINES.get(str(precision), "-."),
        }
        curve = curve.sort_values("B")
        if mode == "serial":
            level = curve.iloc[0]
            ax.axhline(level["normalized"], label=f"{mode} {precision}", **style)
            if level[["low", "high"]].notna().all():
                ax.axhspan(level["low"], level["high"], alpha=0.15, color=style["color"], linewidth=0)
            continue
        ax.plot(
            curve["B"], curve["normalized"], marker="o", markersize=4, label=f"{mode} {precision}", **style
        )
        ax.fill_between(curve["B"], curve["low"], curve["high"], alpha=0.3, color=style["color"], linewidth=0)
        if len(curve) == 1:  # a band has no width there
            spread = [curve["normalized"] - curve["low"], curve["high"] - curve["normalized"]]
            ax.errorbar(curve["B"], curve["normalized"], yerr=spread, color=style["color"], capsize=3)
    ax.set_xlabel("B (models)")
    ax.set_ylabel("Normalized throughput (× serial fp32)")
    # A wide interval (two runs that disagree) must not flatten the curves.
    ax.set_ylim(0, min(ax.get_ylim()[1], _HEADROOM * measured["normalized"].max()))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return ax


def save(ax: Axes, path: str | Path) -> None:
    """Write the axes' figure as PNG at 300 dpi, whole or not at all."""
    with replacing(Path(path)) as temporary:
        figure = ax.figure.figure  # the figure itself, should the axes be in a part of it
        figure.savefig(temporary, format="png", dpi=300, bbox_inches="tight")
