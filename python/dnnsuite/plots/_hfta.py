# SPDX-License-Identifier: MIT
"""Tables of HFTA's parsers, in HFTA's style."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._style import COLOURS, LINES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def hfta(table: pd.DataFrame, label: str) -> Axes:
    """Draw a table of HFTA's parsers in HFTA's style: means over B, bands from the least to the largest run.

    Args:
        table: index B, columns `{mode}:{precision}:{run}`, `:avg`, `:min`, `:max`.
        label: label of the axis.
    """
    from matplotlib.figure import Figure

    ax = Figure(figsize=(6.4, 4.8)).subplots()
    for name in [name.removesuffix(":avg") for name in table.columns if name.endswith(":avg")]:
        mode, precision = name.split(":")
        style: Any = {"color": COLOURS.get(mode, "tab:gray"), "linestyle": LINES.get(precision, "-.")}
        average, least, most = (table[f"{name}:{end}"].dropna() for end in ("avg", "min", "max"))
        if mode == "serial":
            ax.axhline(average.loc[1], label=name, **style)
            ax.axhspan(least.loc[1], most.loc[1], facecolor=style["color"], alpha=0.3)
        else:
            ax.plot(average.index, average, label=name, **style)
            ax.fill_between(average.index, least, most, facecolor=style["color"], alpha=0.3)
    ax.set_xlabel("B")
    ax.set_ylabel(label)
    ax.legend(bbox_to_anchor=(1.05, 1), loc="upper left")
    return ax
