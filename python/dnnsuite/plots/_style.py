# SPDX-License-Identifier: MIT
"""Looks that all figures share, the one way to save a figure, and the interface to `dnnsuite plot`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .._files import replacing
from ..errors import InvalidArgument, did_you_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 300
SUFFIXES = (".png", ".pdf", ".svg")

# Okabe and Ito's colours (https://jfly.uni-koeln.de/color/), which everybody can tell apart, and a marker for each
# mode, for a page without colours.
COLOURS = {"serial": "#000000", "concurrent": "#E69F00", "mps": "#56B4E9", "mig": "#009E73", "hfta": "#D55E00"}
MODE_MARKERS = {"serial": "x", "concurrent": "s", "mps": "^", "mig": "D", "hfta": "o"}
LINES = {"fp32": "--", "bf16": "--", "amp": "-"}
MARKERS = "os^vDPX*"  # one for each job, where there are several
HEADROOM = 1.5


def axes_or_new(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 4.0))[1]


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
