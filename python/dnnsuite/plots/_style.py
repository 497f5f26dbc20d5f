# SPDX-License-Identifier: MIT
"""Looks that all figures share, the one way to save a figure, and the interface to `dnnsuite plot`."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import replacing
from .._lazy import pandas as pd
from ..errors import InvalidArgument, did_you_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..results.comparison import Compared

DPI = 300
SUFFIXES = (".png", ".pdf", ".svg")

# Okabe and Ito's colours (https://jfly.uni-koeln.de/color/), which everybody can tell apart, those that are most unlike
# first; and markers, for a page without colours.
PALETTE = BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = {"serial": "black", "concurrent": BLUE, "mps": PURPLE, "mig": GREEN, "hfta": VERMILION}
MODE_MARKERS = {"serial": "x", "concurrent": "s", "mps": "^", "mig": "D", "hfta": "o"}
LINES = {"fp32": "--", "bf16": "--", "amp": "-"}
MARKERS = "os^vDPX*"  # one for each job, where there are several
HEADROOM = 1.5


def axes_or_new(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 4.0))[1]


def draw_curve(
    ax: Axes, curve: Any, mode: str, precision: str, label: str, marker: str = "", bars: bool = False
) -> None:
    """Draw the values of a mode, serial as a level, with their intervals as a band or as bars.

    Args:
        curve: (x, value, lower end, upper end), each a series.
    """
    style: dict[str, Any] = {"color": COLOURS.get(mode, "tab:gray"), "linestyle": LINES.get(precision, "-.")}
    x, value, low, high = (each.to_numpy(float) for each in curve)
    if mode == "serial":
        ax.axhline(value[0], label=label, **style)
        if math.isfinite(low[0]) and math.isfinite(high[0]):
            ax.axhspan(low[0], high[0], alpha=0.15, color=style["color"], linewidth=0)
        return
    ax.plot(x, value, marker=marker, markersize=5, label=label, **style)
    if bars:
        ax.errorbar(x, value, yerr=[value - low, high - value], fmt="none", ecolor=style["color"], capsize=3)
    else:
        ax.fill_between(x, low, high, alpha=0.3, color=style["color"], linewidth=0)


def over_models(ax: Axes, label: str, words: str = "B (models)", legend: bool = True) -> None:
    """Finish axes over a number of models, or of parts of one."""
    from matplotlib.ticker import MaxNLocator

    ax.set(xlabel=words, ylabel=label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)
    if legend:
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def save(ax: Axes, path: str | Path) -> None:
    """Write the figure of `ax`, whole or not at all, in the format of the suffix.

    Args:
        path: file ending in .png (at 300 dots per inch), .pdf or .svg.

    Raises:
        InvalidArgument: another suffix.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise InvalidArgument(f"{path}: a figure's name ends in one of {', '.join(SUFFIXES)}")
    with replacing(path) as temporary:
        figure = ax.figure.figure  # the figure itself, should the axes be in a part of it
        figure.savefig(temporary, format=path.suffix[1:], dpi=DPI, bbox_inches="tight")


def svg(figure: Figure) -> str:
    """Return the figure as an `<svg>` element, for a page."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})  # the same figure, the same file
    text = out.getvalue()
    return text[text.index("<svg") :]


_OTHER_PICTURES = (".jpg", ".jpeg", ".eps", ".ps", ".gif", ".bmp", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Request:
    """A figure to draw from finished runs, as requested from `dnnsuite plot`.

    Attributes:
        save: name of the figure (`fig.pdf`), or a prefix for the files; None uses the default of the kind of figure.
        metric: name of the quantity, for kinds that have several; None draws all.
        allow_unlike: pool runs of unlike machines or jobs, with a note.
    """

    directories: tuple[Path, ...]
    save: Path | None = None
    metric: str | None = None
    allow_unlike: bool = False

    def files(self, default: Path) -> list[Path]:
        """Paths of the CSV file and of the figure: `save`, else `default`, with their suffixes.

        >>> [path.name for path in Request((), Path("fig.pdf")).files(Path("a"))]
        ['fig.csv', 'fig.pdf']
        """
        return [self.file(default, ".csv"), self.file(default)]

    def file(self, default: Path, suffix: str | None = None, more: str = "") -> Path:
        """Path of one file: of the figure, or with `suffix` of another; `more` comes before the suffix.

        Raises:
            InvalidArgument: `save` ends in the suffix of another kind of picture.
        """
        prefix = self.save or default
        named = self.save is not None and prefix.suffix in SUFFIXES
        hint = "" if named else did_you_mean(prefix.suffix, SUFFIXES)
        if hint or prefix.suffix in _OTHER_PICTURES:
            raise InvalidArgument(f"--save {prefix}: a figure's name ends in one of {', '.join(SUFFIXES)}{hint}")
        stem = prefix.stem if named else prefix.name
        return prefix.with_name(f"{stem}{more}{suffix or (prefix.suffix if named else '.png')}")


@dataclass(frozen=True)
class Drawn:
    """Files that were written for a :class:`Request`, and sentences for its reader."""

    files: Sequence[Path]
    notes: Sequence[str] = field(default=())


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
