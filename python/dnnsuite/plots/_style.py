# SPDX-License-Identifier: MIT
"""Looks that all figures share, and the one way to save a figure."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from .._files import replacing
from ..errors import InvalidArgument

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
