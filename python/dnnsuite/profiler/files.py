# SPDX-License-Identifier: MIT
"""A profile as files: CSV per table with the definitions beside, a trace, figures, the record and the summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import plots
from .._files import OutputError, write_json, write_text
from .._lazy import pandas as pd
from .._shown import duration, percent
from ..errors import reason
from ..results import save_csv
from ._op_classes import TRANSPARENT, meaning
from ._windows import Phase
from .instrument import definitions
from .summary import record, summary, under_the_roofs
from .trace import export_trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ._profile import Profile


_COLOURS = {
    "data": "#e69f00", "data wait": "#e69f00", "forward": "#56b4e9", "backward": "#0072b2", "optimizer": "#cc79a7",
    "host": "#999999", "idle": "#dddddd", "communication": "#d55e00", "gemm": "#009e73", "conv": "#117733",
    "attention": "#44aa99", "recurrence": "#332288", "norm": "#aa4499", "elementwise": "#f0e442", "copy": "#882255",
    "reduction": "#ddcc77", "loss": "#cc6677", "embedding": "#88ccee", "pooling": "#999933",
    "softmax": "#661100", "random": "#6699cc", "other": "#bbbbbb",
    "compiled": "#e7298a", "custom": "#a6761d", "fft": "#1b9e77", "linalg": "#7570b3", "views": "#cccccc",
    "frame": "#777777",
}  # fmt: skip
_STEPS = 3  # of a window that are drawn: more cannot be read


def colour(name: str) -> str:
    """Return the colour of a class or phase, the same in every figure."""
    return _COLOURS.get(name, "#666666")


def bars(breakdown: pd.DataFrame, ax: Axes) -> Axes:
    """Draw shares of a step as horizontal bars, largest on top."""
    table = breakdown.iloc[::-1]
    drawn = ax.barh(table["class"], table["share_pct"], color=[colour(name) for name in table["class"]])
    labels = [
        f"{percent(share)}  ({duration(ms / 1e3)})"
        for share, ms in zip(table["share_pct"], table["ms_per_step"], strict=True)
    ]
    ax.bar_label(drawn, labels, padding=3, fontsize=8)
    ax.set_xlim(0, min(100, table["share_pct"].max()) * 1.35)
    ax.set_xlabel("share of a step's wall time (%)")
    ax.set_title("Where a step's time goes", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def sizes(table: pd.DataFrame, shares: Axes, rates: Axes) -> None:
    """Draw shares of a step, stacked, and the rate with its interval over batch sizes.

    Args:
        table: a row per batch size: `batch_size`, `rate`, `rate_low`, `rate_high`, `unit` and columns `CLASS (%)`.
        shares, rates: axes to draw on.
    """
    labels = [str(size) for size in table["batch_size"]]
    bottom = np.zeros(len(table))
    columns = [column for column in table.columns if column.endswith(" (%)")]
    for column in sorted(columns, key=lambda name: -table[name].sum()):
        name = column.removesuffix(" (%)")
        shares.bar(labels, table[column], bottom=bottom, color=colour(name), label=name, width=0.7)
        bottom += table[column].to_numpy()
    shares.set_ylabel("share of a step (%)")
    shares.set_xlabel("batch size")
    shares.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    spread = np.abs(table[["rate_low", "rate_high"]].to_numpy(float).T - table["rate"].to_numpy(float))
    rates.errorbar(labels, table["rate"].astype(float), yerr=np.nan_to_num(spread), marker="o", capsize=3)
    rates.set_ylim(bottom=0)
    rates.set_ylabel(str(table["unit"].iloc[0]))
    rates.set_xlabel("batch size")


def timeline(tables: dict[str, pd.DataFrame], ax: Axes) -> Axes:
    """Draw the first observed steps over time: phases and operators of each thread, kernels of each stream."""
    steps = tables["steps"]
    active = steps[steps["phase"] == "active"]
    shown = active[active["window"] == active["window"].min()].head(_STEPS)
    begin, end = int(shown["t0_ns"].min()), int(shown["t1_ns"].max())
    rows = [row for row in _rows(tables) if ((row[1]["t0_ns"] < end) & (row[1]["t1_ns"] > begin)).any()]
    seen: dict[str, Any] = {}
    for at, (_, intervals) in enumerate(rows):
        for kind, part in intervals.groupby("kind", sort=False):
            part = part[(part["t0_ns"] < end) & (part["t1_ns"] > begin)]
            spans = np.column_stack([(part["t0_ns"] - begin) / 1e6, (part["t1_ns"] - part["t0_ns"]) / 1e6])
            drawn = ax.broken_barh(spans.tolist(), (at - 0.4, 0.8), facecolors=colour(str(kind)))
            seen.setdefault(str(kind), drawn)
    for edge in [*shown["t0_ns"], end]:
        ax.axvline((edge - begin) / 1e6, color="black", linewidth=0.6, linestyle=":")
    ax.set_yticks(range(len(rows)), [name for name, _ in rows])
    ax.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    ax.set_xlim(0, (end - begin) / 1e6)
    ax.set_xlabel("ms; dotted lines: steps")
    ax.set_title("The first observed steps", loc="left")
    ax.legend(seen.values(), seen.keys(), loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    return ax


def _rows(tables: dict[str, pd.DataFrame]) -> list[tuple[str, pd.DataFrame]]:
    """List (label, intervals with columns kind, t0_ns, t1_ns), the loop's thread first."""
    rows = []
    if (phases := tables.get("phases")) is not None:
        for number, (_, table) in enumerate(phases.groupby("thread", sort=False)):
            rows.append((_numbered("phases", number), table.assign(kind=table["phase"])))
    if (ops := tables.get("ops")) is not None:
        known = ops.assign(kind=[meaning(str(kind))[0] for kind in ops["class"]])
        known = known[~known["class"].isin(TRANSPARENT) & ~known["name"].astype(str).str.startswith("Optimizer")]
        for number, (_, table) in enumerate(known.groupby("thread", sort=False)):
            rows.append((_numbered("operators", number), table))
    if (kernels := tables.get("kernels")) is not None:
        for stream, table in kernels.groupby("stream", sort=True):
            rows.append((f"stream {stream}", table.assign(kind=[meaning(str(kind))[0] for kind in table["class"]])))
    return rows


def _numbered(name: str, number: int) -> str:
    return name if number == 0 else f"{name}, thread {number + 1}"


def save(profile: Profile, directory: Path, figures: bool = True) -> list[Path]:
    """Write everything, or all but the figures, into `directory`, which is made; return the files.

    Raises:
        OutputError: the directory cannot be made, or a file cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {directory}: {reason(error)}") from error
    files = []
    for name, table in profile.tables.items():
        files.append(directory / f"{name}.csv")
        save_csv(table, files[-1])
    files += [directory / name for name in ("definitions.json", "profile.json", "summary.txt")]
    write_json(files[-3], {name: definitions(table) for name, table in profile.tables.items()})
    write_json(files[-2], record(profile))
    write_text(files[-1], summary(profile))
    if profile.active:
        files.append(save_trace(profile.tables, directory / "trace.json.gz"))
        files += _draw(profile, directory) if figures else []
    return files


def save_trace(tables: dict[str, pd.DataFrame], path: Path) -> Path:
    """Write a profile's tables as a trace for Perfetto or chrome://tracing; observed steps are its first track."""
    steps = tables["steps"]
    observed = steps[steps["phase"] == Phase.ACTIVE.value]
    named = observed.assign(name=[f"step {number}" for number in observed["step"]], thread=0)
    shown = {name: table for name, table in tables.items() if name not in ("steps", "steps_cpu")}
    return export_trace({"steps": named, **shown}, path)


def _draw(profile: Profile, directory: Path) -> list[Path]:
    from matplotlib.figure import Figure

    from .roofline import draw

    files = []
    if "phases" in profile.tables or "ops" in profile.tables or "kernels" in profile.tables:
        files.append(directory / "timeline.png")
        plots.save(timeline(profile.tables, Figure(figsize=(10, 3)).subplots()), files[-1])
    roof = under_the_roofs(profile)
    if roof is not None:
        files += [directory / "roofline.csv", directory / "roofline.png"]
        save_csv(roof.table, files[-2])
        plots.save(draw(roof.peaks, roof.table, Figure(figsize=(6.4, 4)).subplots(), roof.lanes), files[-1])
    breakdown = profile.tables.get("breakdown")
    if breakdown is None:
        return files
    height = 1.2 + 0.3 * len(breakdown)
    files.append(directory / "breakdown.png")
    plots.save(bars(breakdown, Figure(figsize=(6.4, height)).subplots()), files[-1])
    return files
