# SPDX-License-Identifier: MIT
"""Losses of models alone and in an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument
from ._style import axes_or_new

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


# A model and its twin in the array have one colour. Where they agree, the thin line lies inside the broad one.
_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown")
_LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "serial": ("alone", {"linewidth": 3.6, "alpha": 0.35, "solid_capstyle": "butt"}),
    "hfta": ("in the array", {"linewidth": 1.0}),
}


def convergence(losses: pd.DataFrame, smooth: int = 1, ax: Axes | None = None) -> Axes:
    """Draw training losses over iterations: of models alone as broad pale lines, of the array as thin lines on them.

    Args:
        losses: content of `convergence.csv`: a row per iteration, columns `serial:<lr>` and `hfta:<lr>`; others are
            left out.
        smooth: iterations that a point is the mean of.
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
            colour = _COLOURS[index % len(_COLOURS)]
            ax.plot(means.index * smooth, means[name], label=label, color=colour, **look)
    if not ax.lines:
        raise InvalidArgument("nothing to draw: no column serial:<lr> or hfta:<lr>")
    ax.set_xlabel("training iteration")
    ax.set_ylabel("training loss" if smooth <= 1 else f"training loss, mean of {smooth} iterations")
    ax.grid(alpha=0.3)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return ax
