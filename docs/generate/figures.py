# SPDX-License-Identifier: MIT
"""Figures of the documentation, drawn from results that are in the repository.

python docs/generate/figures.py    draws them again, after their numbers have changed
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dnnsuite import plots, results
from dnnsuite.plots._style import BLUE, GREEN, PURPLE, VERMILION
from dnnsuite.workflow import modes

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "notebooks/data"
SPEEDS = ROOT / "docs/benchmarks.md"
FIGURE_FOLDER = ROOT / "docs/figures"
SPEED_FIGURE = FIGURE_FOLDER / "speed.svg"
_CELL = re.compile(r"\**(?P<value>[\d.]+)\** \[(?P<low>[\d.]+), (?P<high>[\d.]+)\]")
_WAYS = {  # of the table: label, colour, marker
    "vmap": ("torch.vmap", PURPLE, "s"),
    "hfta": ("HFTA's operators", VERMILION, "D"),
    "concurrent": ("B processes", BLUE, "^"),
    "serial+channels_last": ("torch, fused Adam, channels last", "black", "v"),
    "dnnsuite": ("dnnsuite", GREEN, "o"),
}


@dataclass(frozen=True)
class Speed:
    """Speed relative to torch's serial loop, with its 95 % interval."""

    value: float
    low: float
    high: float


def speeds(text: str) -> dict[str, dict[str, Speed]]:
    """Read the last table of `benchmarks/fused.py` on a page: speeds by workload and way."""
    table = text.split("<!-- fused -->")[1].split("<!-- /fused -->")[0].split("Times as fast as")[-1]
    head, _, *rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    names = [name.strip() for name in head]
    return {
        row[0].strip(): {
            name: Speed(*map(float, found.groups()))
            for name, cell in zip(names, row, strict=True)
            if (found := _CELL.fullmatch(cell.strip()))
        }
        for row in rows
    }


def speed() -> Figure:
    """Draw how many times as fast as torch's serial loop each way trains B models."""
    table = speeds(SPEEDS.read_text(encoding="utf-8"))
    names = sorted(table, key=lambda name: table[name]["dnnsuite"].value)
    figure = Figure(figsize=(7.2, 0.32 * len(names) + 1.3), layout="constrained")
    ax = figure.subplots()
    for way, (label, colour, marker) in _WAYS.items():
        here = [(row, table[name][way]) for row, name in enumerate(names) if way in table[name]]
        ours = way == "dnnsuite"
        ax.plot(
            [each.value for _, each in here],
            [row for row, _ in here],
            marker,
            color=colour,
            label=label,
            markersize=7 if ours else 5,
            zorder=3 if ours else 2,
        )
        if ours:
            ax.hlines([row for row, _ in here], [s.low for _, s in here], [s.high for _, s in here], colour, lw=1)
            for row, each in here:
                ax.annotate(f"{each.value:g}×", (each.high, row), (5, -3), textcoords="offset points", fontsize=8)
    _speed_axes(ax, names)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def _speed_axes(ax: Axes, names: list[str]) -> None:
    ticks = [0.5, 1, 2, 4, 8]
    ax.set(xscale="log", xlabel="times as fast as torch, one model after the other", xlim=(0.5, 14))
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_yticks(range(len(names)), names)
    ax.axvline(1, color="0.6", lw=1)
    ax.grid(axis="x", alpha=0.3)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)


def throughput() -> Figure:
    """Draw the speedup curve of the BERT workflow."""
    return plots.throughput(results.summarize(results.load(SAMPLES / "cpu-bert")), _axes())


def partial_fusion() -> Figure:
    """Draw throughput over the number of units left unfused."""
    summary = results.summarize(results.load(SAMPLES / "partial-resnet"))
    return plots.partially_fused(modes.unfused_table(summary), _axes())


def convergence() -> Figure:
    """Draw losses of an array beside those of its models alone."""
    folder = SAMPLES / "convergence-resnet"
    losses = pd.read_csv(folder / "convergence.csv", index_col="iteration")
    return plots.convergence(losses, json.loads((folder / "verdict.json").read_text())["smooth"], _axes())


def sweep() -> Figure:
    """Draw a random search of 32 small CNNs on scikit-learn's digits."""
    folder = SAMPLES / "sweep-digits"
    table = pd.read_csv(folder / "trials.csv", index_col="trial")
    return plots.sweep(table, pd.read_csv(folder / "epochs.csv"), "acc", "max")


def operators() -> Figure:
    """Draw the distribution of each operator's speed over a grid of shapes."""
    grid = pd.read_csv(ROOT / "benchmarks/results/grid.csv")
    by_name = {str(name): cells["ratio"] for name, cells in grid.groupby("op")}
    names = sorted(by_name, key=lambda name: by_name[name].median())
    ax = _axes(height=0.3 * len(names) + 0.8)
    ax.boxplot(
        [by_name[name] for name in names],
        orientation="horizontal",
        tick_labels=names,
        whis=(5, 95),
        sym=".",
        medianprops={"color": VERMILION},
        flierprops={"markersize": 3, "alpha": 0.5},
    )
    ax.set(xscale="log", xlabel="times as fast as a loop of torch's operator, 4 models")
    ticks = [0.5, 1, 2, 4, 8]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.axvline(1, color="0.6", lw=1)
    ax.grid(axis="x", alpha=0.3)
    return ax


def _axes(height: float = 3.6) -> Axes:
    return Figure(figsize=(6.4, height), layout="constrained").subplots()


FIGURES: dict[str, Callable[[], Figure | Axes]] = {
    "speed": speed,
    "throughput": throughput,
    "partial_fusion": partial_fusion,
    "convergence": convergence,
    "operators": operators,
    "sweep": sweep,
}


def svg(name: str) -> str:
    """SVG of a figure; letters are kept as text, and the same numbers give the same file."""
    drawn = FIGURES[name]()
    figure = drawn if isinstance(drawn, Figure) else drawn.figure
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        return plots.svg(figure)


if __name__ == "__main__":
    FIGURE_FOLDER.mkdir(exist_ok=True)
    for name in FIGURES:
        (FIGURE_FOLDER / f"{name}.svg").write_text(svg(name), encoding="utf-8")
