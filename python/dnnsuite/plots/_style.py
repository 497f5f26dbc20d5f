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
from ..errors import InvalidArgument, did_you_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
