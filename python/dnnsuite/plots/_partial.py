# SPDX-License-Identifier: MIT
"""Throughput over the units that are left unfused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._style import COLOURS, LINES, axes_or_new

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def partially_fused(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw throughput relative to serial fp32 over the number of unfused units; serial is a horizontal line.

    Args:
        table: content of `throughputs.csv`: index `serial num`, columns `serial:<precision>`, `hfta:<precision>`, and
            each with `:low` and `:high`.
        ax: axes to draw on; those of a new figure by default.
    """
    from matplotlib.ticker import MaxNLocator

    ax = axes_or_new(ax)
    for name in [str(name) for name in table.columns if str(name).count(":") == 1]:
        mode, precision = name.split(":")
        values, low, high = (table[f"{name}{end}"].to_numpy(float) for end in ("", ":low", ":high"))
        style: Any = {"color": COLOURS.get(mode, "tab:gray"), "linestyle": LINES.get(precision, "-.")}
        label = f"{mode} {precision}"
        if mode == "serial":
            ax.axhline(values[0], label=label, **style)
            continue
        ax.plot(table.index, values, marker="o", markersize=4, label=label, **style)
        ax.fill_between(table.index, low, high, alpha=0.3, color=style["color"], linewidth=0)
    ax.set_xlabel("units left unfused")
    ax.set_ylabel("Normalized throughput (× serial fp32)")
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return ax
