# SPDX-License-Identifier: MIT
"""Figures of summarised results, and the one way to save a figure."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._files import replacing
from .errors import InvalidArgument

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "DPI",
    "Drawn",
    "Request",
    "convergence",
    "hfta",
    "machine_load",
    "partially_fused",
    "rates",
    "save",
    "svg",
    "throughput",
]

DPI = 300

# HFTA's colours and line styles, so that figures can be laid side by side.
_COLOURS = {
    "serial": "tab:red",
    "concurrent": "tab:green",
    "mps": "tab:blue",
    "mig": "tab:orange",
    "hfta": "tab:purple",
}
_HEADROOM = 1.5
_UNITS = {"bytes": (1e9, "GB"), "bytes/s": (1e9, "GB/s"), "Hz": (1e9, "GHz")}  # (in ours, on an axis)
_LINES = {"fp32": "--", "bf16": "--", "amp": "-"}
_MARKERS = "os^vDPX*"  # one for each job, where there are several


@dataclass(frozen=True)
class Request:
    """A figure to draw from finished runs, as `dnnsuite plot` was asked for it.

    Attributes:
        save: prefix of the files to write; None leaves their name and folder to the kind of figure.
        metric: name of the quantity, for kinds that have several; None draws all.
        allow_unlike: pool runs of unlike machines or jobs, with a note.
    """

    directories: tuple[Path, ...]
    save: Path | None = None
    metric: str | None = None
    allow_unlike: bool = False


@dataclass(frozen=True)
class Drawn:
    """Files that were written for a :class:`Request`, and sentences for its reader."""

    files: Sequence[Path]
    notes: Sequence[str] = field(default=())


def throughput(summary: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw normalised throughput over B, a curve per mode and precision (and job, where there are several).

    Args:
        summary: of :func:`dnnsuite.results.summarize`.
        ax: where to draw; a new figure by default.

    Serial is a level with its interval as a band, the others are lines with a marker at each measured B;
    lines between markers guide the eye. Bands are the 95 % intervals.

    Raises:
        InvalidArgument: nothing in the table is normalised (no serial fp32 run finished).
    """
    from matplotlib.ticker import MaxNLocator

    measured = summary.dropna(subset=["normalized"])
    if measured.empty:
        raise InvalidArgument(
            "nothing to draw: no run has a normalised throughput (no serial fp32 run finished)"
        )
    ax = _axes(ax)
    jobs = list(dict.fromkeys(measured["job"])) if "job" in measured else []
    for index, job in enumerate(jobs or [""]):
        curves = measured[measured["job"] == job] if jobs else measured
        prefix = f"{job} " if len(jobs) > 1 else ""
        for (mode, precision), curve in curves.groupby(["mode", "precision"], sort=False):
            _draw_curve(ax, str(mode), str(precision), curve, prefix, _MARKERS[index % len(_MARKERS)])
    ax.set_xlabel("B (models)")
    ax.set_ylabel("Normalized throughput (× serial fp32)")
    # A wide interval (two runs that disagree) must not flatten the curves.
    ax.set_ylim(0, min(ax.get_ylim()[1], _HEADROOM * measured["normalized"].max()))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return ax


def _draw_curve(ax: Axes, mode: str, precision: str, curve: pd.DataFrame, prefix: str, marker: str) -> None:
    label = f"{prefix}{mode} {precision}"
    style: Any = {"color": _COLOURS.get(mode, "tab:gray"), "linestyle": _LINES.get(precision, "-.")}
    curve = curve.sort_values("B")
    if mode == "serial":
        level = curve.iloc[0]
        ax.axhline(level["normalized"], label=label, **style)
        if level[["low", "high"]].notna().all():
            ax.axhspan(level["low"], level["high"], alpha=0.15, color=style["color"], linewidth=0)
        return
    ax.plot(curve["B"], curve["normalized"], marker=marker, markersize=4, label=label, **style)
    ax.fill_between(curve["B"], curve["low"], curve["high"], alpha=0.3, color=style["color"], linewidth=0)
    if len(curve) == 1:  # a band has no width there
        spread = [curve["normalized"] - curve["low"], curve["high"] - curve["normalized"]]
        ax.errorbar(curve["B"], curve["normalized"], yerr=spread, color=style["color"], capsize=3)


def rates(summary: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the rate of each job, mode, precision and B with its 95 % interval, on a logarithmic axis.

    For runs without a baseline, as a suite's. Units differ between jobs; each row names its own.

    Args:
        summary: of :func:`dnnsuite.results.summarize`.
        ax: where to draw; a new figure by default.

    Raises:
        InvalidArgument: no run finished, or none at a rate above zero.
    """
    import numpy as np

    measured = summary[summary["rate"] > 0]
    if measured.empty:
        raise InvalidArgument("nothing to draw: no run finished")
    ax = _axes(ax)
    rate = measured["rate"].to_numpy(float)
    below, above = (measured[name].to_numpy(float) for name in ("rate_low", "rate_high"))
    # An end that is not known is not drawn; one at or below zero would not fit the axis.
    below = np.where(np.isfinite(below), np.clip(below, 0.1 * rate, rate), rate)
    above = np.where(np.isfinite(above), np.clip(above, rate, 10 * rate), rate)
    places = np.arange(len(measured))
    ax.errorbar(
        rate, places, xerr=[rate - below, above - rate], fmt="o", markersize=4, capsize=3, color="tab:blue"
    )
    ax.set_yticks(places, [_row_name(row) for row in measured.to_dict("records")])
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xlabel("rate, with its 95 % interval")
    ax.grid(alpha=0.3, axis="x")
    return ax


def machine_load(summary: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw one quantity of the machine's load over B, a curve per mode and precision; for a suite, by job.

    Args:
        summary: of :func:`dnnsuite.results.summarize_monitors`, the rows of one quantity.
        ax: where to draw; a new figure by default.

    Lines between markers guide the eye. Bands and bars are the 95 % intervals over repeats.

    Raises:
        InvalidArgument: there are no rows, or rows of several quantities.
    """
    named = summary[["of", "metric", "unit"]].drop_duplicates()
    if len(named) != 1:
        raise InvalidArgument(f"{len(named)} quantities for one figure: pass the rows of one")
    of, metric, unit = named.iloc[0]
    scale, unit = _UNITS.get(unit, (1.0, unit))
    scaled = summary.assign(**{name: summary[name] / scale for name in ("mean", "low", "high")})
    ax = _axes(ax)
    draw = _load_over_B if scaled["B"].nunique() > 1 else _load_by_row
    draw(ax, scaled, f"{of} {metric} ({unit})")
    ax.grid(alpha=0.3)
    return ax


def _load_over_B(ax: Axes, summary: pd.DataFrame, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    jobs = list(dict.fromkeys(summary["job"]))
    for (job, mode, precision), curve in summary.groupby(["job", "mode", "precision"], sort=False):
        curve = curve.sort_values("B")
        style: Any = {
            "color": _COLOURS.get(str(mode), "tab:gray"),
            "linestyle": _LINES.get(str(precision), "-."),
        }
        name = f"{job} " if len(jobs) > 1 else ""
        marker = _MARKERS[jobs.index(job) % len(_MARKERS)]
        if mode == "serial":
            ax.axhline(curve["mean"].iloc[0], label=f"{name}{mode} {precision}", **style)
            continue
        ax.plot(
            curve["B"], curve["mean"], marker=marker, markersize=4, label=f"{name}{mode} {precision}", **style
        )
        ax.fill_between(curve["B"], curve["low"], curve["high"], alpha=0.3, color=style["color"], linewidth=0)
    _limit(ax.set_ylim, summary)
    ax.set_xlabel("B (models)")
    ax.set_ylabel(label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _load_by_row(ax: Axes, summary: pd.DataFrame, label: str) -> None:
    import numpy as np

    places = np.arange(len(summary))
    middle, low, high = (summary[name].to_numpy(float) for name in ("mean", "low", "high"))
    spread = [np.nan_to_num(middle - low), np.nan_to_num(high - middle)]
    ax.errorbar(middle, places, xerr=spread, fmt="o", markersize=4, capsize=3, color="tab:blue")
    cells = [
        row["job"] + ("" if row["mode"] == "shares" else f" {row['mode']} {row['precision']} B={row['B']}")
        for row in summary.to_dict("records")
    ]
    ax.set_yticks(places, cells)
    ax.invert_yaxis()
    _limit(ax.set_xlim, summary)
    ax.set_xlabel(label)


def _limit(set_limits: Callable[[float, float], object], summary: pd.DataFrame) -> None:
    """From zero to just above the largest mean: a wide interval must not flatten the curves."""
    top = float(summary["mean"].max())
    set_limits(0, _HEADROOM * top if top > 0 else 1)


def hfta(table: pd.DataFrame, label: str) -> Axes:
    """Draw a table of HFTA's parsers in HFTA's style: means over B, bands from the least to the largest run.

    Args:
        table: index B, columns `{mode}:{precision}:{run}`, `:avg`, `:min`, `:max`.
        label: of the axis.
    """
    from matplotlib.figure import Figure

    ax = Figure(figsize=(6.4, 4.8)).subplots()
    for name in [name.removesuffix(":avg") for name in table.columns if name.endswith(":avg")]:
        mode, precision = name.split(":")
        style: Any = {"color": _COLOURS.get(mode, "tab:gray"), "linestyle": _LINES.get(precision, "-.")}
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


def partially_fused(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw normalised throughput over the number of units that are left unfused; serial is a level.

    Args:
        table: of `throughputs.csv`: index `serial num`, columns `serial:<precision>`, `hfta:<precision>`, and each with
            `:low` and `:high`.
        ax: where to draw; a new figure by default.
    """
    from matplotlib.ticker import MaxNLocator

    ax = _axes(ax)
    for name in [str(name) for name in table.columns if str(name).count(":") == 1]:
        mode, precision = name.split(":")
        values, low, high = (table[f"{name}{end}"].to_numpy(float) for end in ("", ":low", ":high"))
        style: Any = {"color": _COLOURS.get(mode, "tab:gray"), "linestyle": _LINES.get(precision, "-.")}
        label = f"{mode} {precision}"
        if mode == "serial":
            ax.axhline(values[0], label=label, **style)
            continue
        ax.plot(table.index, values, marker="o", markersize=4, label=label, **style)
        ax.fill_between(table.index, low, high, alpha=0.3, color=style["color"], linewidth=0)
    ax.set_title("HFTA Partially Fused Throughputs")
    ax.set_xlabel("serial layers")
    ax.set_ylabel("Normalized Throughput")
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return ax


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
    ax = _axes(ax)
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


def _row_name(row: dict[Any, Any]) -> str:
    """A job with its unit; with mode, precision and B where those say something."""
    cell = "" if row["mode"] == "shares" else f" {row['mode']} {row['precision']} B={row['B']}"
    return f"{row['job']}{cell} ({row['unit']})"


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 4.0))[1]


def save(ax: Axes, path: str | Path) -> None:
    """Write the axes' figure as PNG at `DPI`, whole or not at all."""
    with replacing(Path(path)) as temporary:
        figure = ax.figure.figure  # the figure itself, should the axes be in a part of it
        figure.savefig(temporary, format="png", dpi=DPI, bbox_inches="tight")


def svg(figure: Figure) -> str:
    """The figure as an `<svg>` element, for a page."""
    out = io.StringIO()
    figure.savefig(out, format="svg")
    text = out.getvalue()
    return text[text.index("<svg") :]
