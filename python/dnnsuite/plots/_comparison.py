# SPDX-License-Identifier: MIT
"""Two sides: changes of speed with their intervals, and losses of models alone and in an array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument
from ._style import BLUE, PALETTE, VERMILION, axes_or_new

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ..results.comparison import Compared

_LOOKS_OF_VERDICTS = {"faster": (BLUE, ">"), "slower": (VERMILION, "<"), "same": ("black", "s")}  # colour, marker


def comparison(points: Sequence[Compared], ax: Axes | None = None) -> Axes:
    """Draw the change of speed of each point in percent, its 95 % interval, and its verdict by colour and marker.

    A point that was not compared has its verdict as text.

    Args:
        points: points from :func:`dnnsuite.results.compare`.
        ax: axes to draw on; those of a new figure, as high as there are points, by default.
    """
    ax = axes_or_new(ax)
    if ax.figure is not None:
        ax.figure.figure.set_figheight(1.2 + 0.32 * max(3, len(points)))
    for row, point in enumerate(points):
        if not math.isfinite(point.ratio):
            ax.text(0, row, f" {point.verdict}", va="center", color="tab:gray", fontsize="small")
            continue
        colour, marker = _LOOKS_OF_VERDICTS.get(point.verdict, ("tab:gray", "o"))
        known = math.isfinite(point.low) and math.isfinite(point.high)
        ends = [[100 * (point.ratio - point.low)], [100 * (point.high - point.ratio)]] if known else None
        label = point.verdict if point.verdict not in ax.get_legend_handles_labels()[1] else None
        ax.errorbar([point.change_pct], [row], xerr=ends, fmt=marker, color=colour, capsize=3, label=label)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(points)), [point.point for point in points])
    ax.set_ylim(len(points) - 0.5, -0.5)
    ax.set_xlabel("change of speed (%), right is faster")
    ax.grid(alpha=0.3, axis="x")
    if ax.get_legend_handles_labels()[1]:
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, title="verdict\n(bars: 95 % interval)")
    return ax


# A model and its twin in the array have one colour. Where they agree, the thin line lies inside the broad one.
_LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "serial": ("alone", {"linewidth": 3.6, "alpha": 0.35, "solid_capstyle": "butt"}),
    "hfta": ("in the array", {"linewidth": 1.0}),
}


def convergence(losses: pd.DataFrame, smooth: int = 1, ax: Axes | None = None) -> Axes:
    """Draw training losses over iterations: models alone as broad pale lines, the array as thin lines on top.

    Args:
        losses: content of `convergence.csv`: a row per iteration, columns `serial:<lr>` and `hfta:<lr>`; others are
            left out.
        smooth: number of iterations that each point averages.
        ax: axes to draw on; those of a new figure by default.

    Raises:
        InvalidArgument: there is no such column.
    """
    ax = axes_or_new(ax)
    means = losses.groupby(losses.reset_index(drop=True).index // max(smooth, 1)).mean()
    for way, (words, look) in _LOOKS.items():
        names = [str(name) for name in losses.columns if str(name).startswith(f"{way}:")]
        for index, name in enumerate(names):
            label = f"{words}, lr {name.removeprefix(f'{way}:')}"
            colour = PALETTE[index % len(PALETTE)]
            ax.plot(means.index * smooth, means[name], label=label, color=colour, **look)
    if not ax.lines:
        raise InvalidArgument("nothing to draw: no column serial:<lr> or hfta:<lr>")
    ax.set_xlabel("training iteration")
    ax.set_ylabel("training loss" if smooth <= 1 else f"training loss, mean of {smooth} iterations")
    ax.grid(alpha=0.3)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return ax
