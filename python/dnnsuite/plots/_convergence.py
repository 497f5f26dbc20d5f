# SPDX-License-Identifier: MIT
"""Losses of models alone and in an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument
from ._style import axes_or_new

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


# HFTA's colours of models alone and of the array's, in turns.
_ALONE = ("blue", "forestgreen", "cornflowerblue")
_FUSED = ("red", "darkviolet", "darkorange")


def convergence(losses: pd.DataFrame, smooth: int = 1, ax: Axes | None = None) -> Axes:
    """Draw training losses over iterations: models alone as lines, those of the array dashed.

    Args:
        losses: of `convergence.csv`: a row per iteration, columns `serial:<lr>` and `hfta:<lr>`; others are left out.
        smooth: iterations that a point is the mean of.
        ax: where to draw; a new figure by default.

    Raises:
        InvalidArgument: there is no such column.
    """
    ax = axes_or_new(ax)
    means = losses.groupby(losses.reset_index(drop=True).index // max(smooth, 1)).mean()
    for way, colours, line in (("serial", _ALONE, "-"), ("hfta", _FUSED, "--")):
        names = [name for name in losses.columns if str(name).startswith(f"{way}:")]
        for index, name in enumerate(names):
            style: Any = {"color": colours[index % len(colours)], "linestyle": line, "linewidth": 0.8}
            ax.plot(means.index * smooth, means[name], label=name, **style)
    if not ax.lines:
        raise InvalidArgument("nothing to draw: no column serial:<lr> or hfta:<lr>")
    ax.set_xlabel("Train iterations")
    ax.set_ylabel("Train loss")
    ax.grid(alpha=0.3)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return ax
