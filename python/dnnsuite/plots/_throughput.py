# SPDX-License-Identifier: MIT
"""Figures over the number of models: rates of workflows, load of the machine, partly fused models, HFTA's tables; and
rates of a suite's jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._lazy import pandas as pd
from ..errors import InvalidArgument
from ._style import HEADROOM, MARKERS, MODE_MARKERS, axes_or_new, draw_curve, over_models

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NORMALISED = "Normalised throughput (× serial fp32)"
_WIDEST = 2.0  # factor between the ends of an interval that is still drawn
_LONGEST = 90  # letters of a line above the figure


def throughput(summary: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw normalised throughput over B: a colour and marker per mode, a line style per precision.

    Args:
        summary: table from :func:`dnnsuite.results.summarize`.
        ax: axes to draw on; those of a new figure by default.

    Serial is a level with its interval as a band, the others are lines with a marker and the 95 % interval at each
    measured B; lines between markers guide the eye. A value whose interval spans more than a factor of two, or that
    is inconclusive, is not drawn. The title has the number of such values, the job, batch, machine, repeats and notes
    on the machine.

    Raises:
        InvalidArgument: nothing in the table is normalised (no serial fp32 run finished), or known well enough.
    """
    normalised = summary.dropna(subset=["normalized"])
    if normalised.empty:
        raise InvalidArgument("nothing to draw: no run has a normalised throughput (no serial fp32 run finished)")
    measured = normalised[~_unknown(normalised)]
    if measured.empty:
        raise InvalidArgument("nothing to draw: every interval spans more than a factor of two; the machine was busy")
    ax = axes_or_new(ax)
    jobs = list(dict.fromkeys(measured["job"])) if "job" in measured else []
    for index, job in enumerate(jobs or [""]):
        curves = measured[measured["job"] == job] if jobs else measured
        prefix = f"{job} " if len(jobs) > 1 else ""
        for (mode, precision), curve in curves.groupby(["mode", "precision"], sort=False):
            marker = MARKERS[index % len(MARKERS)] if len(jobs) > 1 else MODE_MARKERS.get(str(mode), "v")
            ends = curve.sort_values("B")
            columns = [ends[name] for name in ("B", "normalized", "low", "high")]
            draw_curve(ax, columns, str(mode), str(precision), f"{prefix}{mode} {precision}", marker, bars=True)
    # A wide interval (two runs that disagree) must not flatten the curves.
    ax.set_ylim(0, min(ax.get_ylim()[1], HEADROOM * measured["normalized"].max()))
    over_models(ax, _NORMALISED)
    if len(measured) < len(normalised) and (measured["mode"] == "serial").all():
        ax.text(0.5, 0.5, "no speedup is known well enough to be drawn", transform=ax.transAxes, ha="center")
    if title := _title(summary, measured, len(normalised) - len(measured)):
        ax.set_title(title, fontsize="small")
    return ax


def _unknown(summary: pd.DataFrame) -> pd.Series[bool]:
    """Rows that are not drawn: intervals that are too wide, and runs that were inconclusive and have no interval."""
    unknown = summary["high"] / summary["low"] > _WIDEST
    if {"state", "runs"} <= set(summary):
        several = (summary["runs"] > 1) & summary["low"].notna()  # together they tell more
        unknown |= summary["state"].str.contains("inconclusive", na=False) & ~several
    return unknown


def _title(summary: pd.DataFrame, measured: pd.DataFrame, left_out: int) -> str:
    """Return the lines above the figure: what was measured, and what a reader must know of the machine."""
    titles = list(summary.attrs.get("titles", {}).values())
    lines = [f"{titles[0]}, 95 % intervals"] if len(titles) == 1 else []
    if left_out:
        lines.append(f"{left_out} point{'s' * (left_out > 1)} not drawn: inconclusive")
    states = [state for state in measured.get("state", ()) if state]
    if states:
        told = max(states, key=states.count)
        lines.append(told if len(told) <= _LONGEST else told[:_LONGEST].rsplit(" ", 1)[0] + " …")
    return "\n".join(lines)


def rates(summary: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the rate of each job, mode, precision and B with its 95 % interval, on a logarithmic axis.

    For runs without a baseline, as a suite's. Units differ between jobs; each row names its own.

    Args:
        summary: table from :func:`dnnsuite.results.summarize`.
        ax: axes to draw on; those of a new figure by default.

    Raises:
        InvalidArgument: no run finished, or none at a rate above zero.
    """
    measured = summary[summary["rate"] > 0]
    if measured.empty:
        raise InvalidArgument("nothing to draw: no run finished")
    ax = axes_or_new(ax)
    rate = measured["rate"].to_numpy(float)
    below, above = (measured[name].to_numpy(float) for name in ("rate_low", "rate_high"))
    # An end that is not known is not drawn; one at or below zero would not fit the axis.
    below = np.where(np.isfinite(below), np.clip(below, 0.1 * rate, rate), rate)
    above = np.where(np.isfinite(above), np.clip(above, rate, 10 * rate), rate)
    places = np.arange(len(measured))
    ax.errorbar(rate, places, xerr=[rate - below, above - rate], fmt="o", markersize=4, capsize=3, color="tab:blue")
    ax.set_yticks(places, [f"{_row_name(row)} ({row['unit']})" for row in measured.to_dict("records")])
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xlabel("rate, with its 95 % interval")
    ax.grid(alpha=0.3, axis="x")
    return ax


def _row_name(row: dict[Any, Any]) -> str:
    """Return a job, with mode, precision and B where those say something."""
    return str(row["job"]) + ("" if row["mode"] == "shares" else f" {row['mode']} {row['precision']} B={row['B']}")


_UNITS = {"bytes": (1e9, "GB"), "bytes/s": (1e9, "GB/s"), "Hz": (1e9, "GHz")}  # (in ours, on an axis)


def machine_load(summary: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw one quantity of the machine's load over B, a curve per mode and precision; for a suite, by job.

    Args:
        summary: rows of one quantity from :func:`dnnsuite.results.summarize_monitors`.
        ax: axes to draw on; those of a new figure by default.

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
    ax = axes_or_new(ax)
    draw = _load_over_B if scaled["B"].nunique() > 1 else _load_by_row
    draw(ax, scaled, f"{of} {metric} ({unit})")
    return ax


def _load_over_B(ax: Axes, summary: pd.DataFrame, label: str) -> None:
    jobs = list(dict.fromkeys(summary["job"]))
    for (job, mode, precision), curve in summary.groupby(["job", "mode", "precision"], sort=False):
        ends = curve.sort_values("B")
        name = f"{job} " if len(jobs) > 1 else ""
        columns = [ends[name] for name in ("B", "mean", "low", "high")]
        marker = MARKERS[jobs.index(job) % len(MARKERS)]
        draw_curve(ax, columns, str(mode), str(precision), f"{name}{mode} {precision}", marker)
    over_models(ax, label, legend=False)  # one serves all panels
    _limit(ax.set_ylim, summary)


def _load_by_row(ax: Axes, summary: pd.DataFrame, label: str) -> None:
    places = np.arange(len(summary))
    middle, low, high = (summary[name].to_numpy(float) for name in ("mean", "low", "high"))
    spread = [np.nan_to_num(middle - low), np.nan_to_num(high - middle)]
    ax.errorbar(middle, places, xerr=spread, fmt="o", markersize=4, capsize=3, color="tab:blue")
    ax.set_yticks(places, [_row_name(row) for row in summary.to_dict("records")])
    ax.grid(alpha=0.3)
    ax.invert_yaxis()
    _limit(ax.set_xlim, summary)
    ax.set_xlabel(label)


def _limit(set_limits: Callable[[float, float], object], summary: pd.DataFrame) -> None:
    """Upper limit of the axis: just above the largest mean, so that a wide interval does not flatten the curves."""
    top = float(summary["mean"].max())
    set_limits(0, HEADROOM * top if top > 0 else 1)


def partially_fused(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw throughput relative to serial fp32 over the number of unfused units; serial is a horizontal line.

    Args:
        table: content of `throughputs.csv`: index `serial num`, columns `serial:<precision>`, `hfta:<precision>`, and
            each with `:low` and `:high`.
        ax: axes to draw on; those of a new figure by default.
    """
    ax = axes_or_new(ax)
    x = table.index.to_series()
    for name in [str(name) for name in table.columns if str(name).count(":") == 1]:
        mode, precision = name.split(":")
        columns = [x, *(table[f"{name}{end}"] for end in ("", ":low", ":high"))]
        draw_curve(ax, columns, mode, precision, f"{mode} {precision}", "o")
    over_models(ax, _NORMALISED, "units left unfused")
    ax.set_ylim(bottom=0)
    return ax


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
        columns = [table[f"{name}:{end}"].dropna() for end in ("avg", "min", "max")]
        if mode == "serial":
            columns = [each.loc[[1]] for each in columns]
        draw_curve(ax, [columns[0].index.to_series(), *columns], mode, precision, name)
    ax.set_xlabel("B")
    ax.set_ylabel(label)
    ax.legend(bbox_to_anchor=(1.05, 1), loc="upper left")
    return ax


_MIB = 2.0**20


def batch_sizes(summary: pd.DataFrame, ax: Axes | None = None, memory: Axes | None = None) -> Axes:
    """Draw the rate over the batch size with its 95 % interval, and mark the knee; sizes that failed are crosses.

    Args:
        summary: table from :func:`dnnsuite.results.by_batch_size`; a curve for each job, device, mode, precision and B.
        ax: axes to draw on; those of a new figure by default.
        memory: axes for the peak memory; None draws none.

    Raises:
        InvalidArgument: no size was measured.
    """
    if not (summary["rate"] > 0).any():
        raise InvalidArgument("nothing to draw: no batch size was measured")
    ax = axes_or_new(ax)
    curves = list(summary.groupby(["job", "device", "mode", "precision", "B"], sort=False))
    for index, (key, curve) in enumerate(curves):
        name = f"{key[0]} {key[3]} on {key[1]}" + (f", B={key[4]}" if key[2] == "hfta" else "")
        _draw(ax, memory, curve, name, MARKERS[index % len(MARKERS)])
    _axis(ax, summary)
    ax.set_ylabel(" or ".join(dict.fromkeys(summary["unit"])))
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small")
    if memory is not None:
        _axis(memory, summary)
        memory.set_ylabel("Peak memory (MiB)")
        memory.set_ylim(0, 1.15 * summary["peak_memory_bytes"].max() / _MIB)
    return ax


def _axis(ax: Axes, summary: pd.DataFrame) -> None:
    sizes = sorted(set(summary["batch_size"]))
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.minorticks_off()
    ax.set_xlabel("Batch size")
    ax.grid(alpha=0.3)


def _draw(ax: Axes, memory: Axes | None, curve: pd.DataFrame, name: str, marker: str) -> None:
    good = curve[curve["rate"] > 0]
    (line, *_) = ax.errorbar(
        good["batch_size"], good["rate"], yerr=_spread(good, "rate"), marker=marker, markersize=4, capsize=3, label=name
    )
    for at in good.loc[good["knee"], "batch_size"]:
        ax.axvline(at, color=line.get_color(), linestyle=":", label=f"knee at {at}")
    bad = curve[~(curve["rate"] > 0)]
    if len(bad):
        what = ", ".join(dict.fromkeys(bad["status"]))
        ax.plot(bad["batch_size"], [0] * len(bad), "x", color="tab:red", clip_on=False, label=what)
    if memory is not None:
        memory.plot(
            good["batch_size"], good["peak_memory_bytes"] / _MIB, marker=marker, markersize=4, color=line.get_color()
        )


def weak_scaling(table: pd.DataFrame, ax: Axes | None = None, efficiency: Axes | None = None) -> Axes:
    """Draw total throughput over the number of processes with its interval, and the ideal line of each curve.

    Args:
        table: table from :func:`dnnsuite.results.weak_scaling`.
        ax: axes to draw on; those of a new figure by default.
        efficiency: axes for the efficiency; None draws none.
    """
    ax = axes_or_new(ax)
    groups = list(table.groupby(["device", "precision", "B", "batch_per_process"], sort=False))
    for index, ((_, precision, models, batch), curve) in enumerate(groups):
        label = f"{precision}, batch {batch} each" + (f", B={models}" if models != 1 else "")
        style: Any = {"marker": MARKERS[index % len(MARKERS)], "linestyle": "", "markersize": 5, "capsize": 3}
        sizes = curve["processes"].to_numpy(float)
        color = f"C{index}"
        ax.errorbar(sizes, curve["rate"], yerr=_spread(curve, "rate"), color=color, label=label, **style)
        ends = np.array([0.0, sizes.max()])
        ax.plot(ends, ends * (curve["ideal"] / curve["processes"]).iloc[0], "k--", linewidth=1, label="ideal")
        if efficiency is not None:
            percent = 100 * curve[["efficiency", "efficiency_low", "efficiency_high"]]
            efficiency.errorbar(
                sizes, percent["efficiency"], yerr=_spread(percent, "efficiency"), color=color, label=label, **style
            )
    what = "GPUs" if set(table["device"]) == {"cuda"} else "processes"
    ax.set_title("Weak scaling training throughput")
    ax.set_ylabel(f"Training throughput ({table['unit'].iloc[0]})")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small")
    for each in (ax, efficiency):
        if each is not None:
            each.set_xlabel(f"Number of {what}")
            each.set_xlim(left=0)
            each.set_xticks(sorted(set(table["processes"])))
            each.grid(alpha=0.3)
    if efficiency is not None:
        efficiency.axhline(100, color="black", linestyle="--", linewidth=1)
        efficiency.set_ylabel("Efficiency (% of the ideal)")
        efficiency.set_ylim(0, max(110, 110 * table["efficiency"].max()))
    return ax


def _spread(curve: pd.DataFrame, name: str) -> Any:
    """Distances of an interval's ends from the values; 0 where it is not known."""
    value = curve[name].to_numpy(float)
    ends = curve[[f"{name}_low", f"{name}_high"]].to_numpy(float).T
    return np.nan_to_num(np.abs(ends - value))
