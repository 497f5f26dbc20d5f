# SPDX-License-Identifier: MIT
"""Changes of speed with their intervals, a line for each point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ._style import axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..results.comparison import Compared

_COLOURS = {"faster": "tab:green", "slower": "tab:red", "same": "tab:blue", "inconclusive": "tab:gray"}


def comparison(points: Sequence[Compared], ax: Axes | None = None) -> Axes:
    """Draw the change of speed of each point in percent with its 95 % interval, coloured by the verdict.

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
        colour = _COLOURS.get(point.verdict, "tab:gray")
        known = math.isfinite(point.low) and math.isfinite(point.high)
        ends = [[100 * (point.ratio - point.low)], [100 * (point.high - point.ratio)]] if known else None
        label = point.verdict if point.verdict not in ax.get_legend_handles_labels()[1] else None
        ax.errorbar([point.change_pct], [row], xerr=ends, fmt="o", color=colour, capsize=3, label=label)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(points)), [point.point for point in points])
    ax.set_ylim(len(points) - 0.5, -0.5)
    ax.set_xlabel("change of speed (%), right is faster")
    ax.grid(alpha=0.3, axis="x")
    if ax.get_legend_handles_labels()[1]:
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, title="verdict\n(bars: 95 % interval)")
    return ax
