# SPDX-License-Identifier: MIT
"""`dnnsuite plot`: figures of finished runs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._lazy import pandas as pd
from ..errors import InvalidArgument, did_you_mean, some_of
from ._completion import beginning
from ._late import figure, plots, results
from ._options import File, Json, Text
from ._status import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: `module:function` of a function `(plots.Request) -> plots.Drawn`, imported when it is called; and the pattern of a
#: file by which a directory of such results is recognised, empty for kinds that are only drawn by name.
KINDS = {
    "throughput": ("dnnsuite.cli.plot:throughput", ""),
    "monitor": ("dnnsuite.cli.plot:monitor", ""),
    "convergence": ("dnnsuite.workflow.convergence.verdict:draw", "convergence.csv"),
    "partially_fused": ("dnnsuite.workflow.modes:draw_unfused", "throughputs.csv"),
    "batch_sizes": ("dnnsuite.cli.plot:batch_sizes", "throughput.json"),
    "scaling": ("dnnsuite.cli.plot:scaling", ""),
    "sweep": ("dnnsuite.cli.plot:sweep", "**/sweep.json"),
    "accuracy": ("dnnsuite.training.figures:drawn", "metrics.csv"),
}


def kind_for(name: str | None, directories: Sequence[Path]) -> str:
    """Return that name; without one, the kind of the first directory's file, else throughput.

    Raises:
        InvalidArgument: there is no such kind; the message lists them.
    """
    if name is None:
        return next(
            (kind for kind, (_, file) in KINDS.items() if file and any(directories[0].glob(file))), "throughput"
        )
    if name not in KINDS:
        raise InvalidArgument(f"--kind {name}: accepted: {some_of(KINDS)}{did_you_mean(name, KINDS)}")
    return name


def draw(kind: str, request: plots.Request) -> plots.Drawn:
    """Draw a figure of this kind."""
    module, _, function = KINDS[kind][0].partition(":")
    drawn: plots.Drawn = getattr(importlib.import_module(module), function)(request)
    return drawn


def plot(
    directories: Annotated[list[Path], "Outputs of runs of any kind, or a tree of HFTA's timing.csv files."],
    kind: Annotated[
        Text,
        typer.Option(
            help="Figure to draw; an unknown name lists them.  [by the results, throughput]",
            autocompletion=lambda incomplete: beginning(incomplete, KINDS),
        ),
    ] = None,
    metric: Annotated[Text, "Quantity to draw, for kinds with several.  [all]"] = None,
    save: Annotated[
        File, "File for the figure (.png, .pdf or .svg), or a PREFIX; its numbers go to a .csv beside it."
    ] = None,
    allow_unlike: Annotated[bool, "Pool runs of different machines or jobs, with a note."] = False,
    as_json: Json = False,
) -> int:
    """Draw a figure of finished runs; write its numbers as CSV.

    throughput: normalised throughput over B; for a suite, the rate of each job. monitor: load of CPUs, memory and GPUs
    during the runs, over B; for a suite, by job. convergence: losses over iterations. partially_fused: throughput over
    the units left unfused. batch_sizes: rate and peak memory over the batch size, with the knee. scaling: total rate
    of training runs over the number of processes, with the ideal line and the efficiency. sweep: history, parallel
    coordinates, importance and a slice per hyper-parameter of a search (--metric lr,dropout chooses slices). accuracy:
    accuracy of training runs over epochs and minutes.
    """
    chosen = kind_for(kind, directories)
    drawn = draw(chosen, plots.Request(tuple(directories), save, metric, allow_unlike))
    for sentence in drawn.notes:
        say(sentence)
    files = [str(path) for path in drawn.files]
    print(json.dumps({"files": files}) if as_json else "\n".join(files))
    return 0


def throughput(request: plots.Request) -> plots.Drawn:
    """Draw normalised throughput over B; rates where only a suite's runs are."""
    if request.metric is not None:
        raise InvalidArgument(f"--metric {request.metric}: throughput has one quantity; leave out --metric")
    table = results.load(*request.directories)
    problems = table.attrs["problems"]
    table, left_out = (table, []) if request.allow_unlike else results.without_odd(table)
    summary = results.summarize(table, request.allow_unlike)
    axes = _drawn(summary)
    files = request.files(request.directories[0] / _name(table))
    results.save_csv(results.wide(table, request.allow_unlike), files[0], index=True)
    plots.save(axes, files[1])
    return plots.Drawn(files, (*problems, *left_out, *summary.attrs["notes"]))


def monitor(request: plots.Request) -> plots.Drawn:
    """Draw the load of the machine during the rated windows: a panel per quantity, or one quantity."""
    from matplotlib.figure import Figure

    table = results.load_monitors(*request.directories, allow_unlike=request.allow_unlike)
    summary = _quantities(results.summarize_monitors(table), request.metric)
    stem = f"{table['device'].iloc[0]}-{'-'.join(dict.fromkeys(table['job']))[:80]}-monitor"
    more = f"-{request.metric.replace('/', '_')}" if request.metric else ""
    files = request.files(request.directories[0] / (stem + more))
    panels = list(summary.groupby(["of", "metric"], sort=False))
    rows = -(-len(panels) // _ACROSS)
    height = 3.2 if summary["B"].nunique() > 1 else 1.5 + 0.25 * max(len(rows) for _, rows in panels)
    figure = Figure(figsize=(4.8 * min(len(panels), _ACROSS), height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, min(len(panels), _ACROSS), i + 1) for i in range(len(panels))]
    for ax, (_, quantity) in zip(axes, panels, strict=True):
        plots.machine_load(quantity, ax)
    if axes[-1].get_legend_handles_labels()[0]:
        axes[0].legend(fontsize="small")
    results.save_csv(summary, files[0])
    plots.save(axes[0], files[1])
    return plots.Drawn(files, (*table.attrs["problems"], *table.attrs["notes"]))


def batch_sizes(request: plots.Request) -> plots.Drawn:
    """Draw rate and peak memory over the batch size, of throughput measurements or of profiles."""
    return _two_panels(request, "batch_sizes", "throughput", results.by_batch_size, plots.batch_sizes)


def scaling(request: plots.Request) -> plots.Drawn:
    """Draw weak scaling of training runs: total rate over processes, the ideal line, the efficiency."""
    return _two_panels(request, "scaling", "scaling", results.weak_scaling, plots.weak_scaling)


def _two_panels(
    request: plots.Request,
    kind: str,
    file: str,
    summarize: Callable[[pd.DataFrame, bool], pd.DataFrame],
    draw: Callable[[pd.DataFrame, Any, Any], Any],
) -> plots.Drawn:
    """Save the summary of all runs, and its figure of two panels beside each other, as `file`.csv and .png."""

    if request.metric is not None:
        raise InvalidArgument(f"--metric {request.metric}: {kind} has no choice; leave out --metric")
    summary = summarize(results.load(*request.directories), request.allow_unlike)
    files = request.files(request.directories[0] / file)
    left, right = figure.Figure(figsize=(9.6, 3.8), layout="constrained").subplots(1, 2)
    draw(summary, left, right)
    results.save_csv(summary, files[0])
    plots.save(left, files[1])
    return plots.Drawn(files, (*summary.attrs["problems"], *summary.attrs["notes"]))


def sweep(request: plots.Request) -> plots.Drawn:
    """Draw searches: the figure of `Sweep.plot`, for each sweep at or below a directory."""
    found = [path.parent for each in request.directories for path in sorted(each.glob("**/sweep.json"))]
    files, notes = [], []
    for folder in found:
        if not (folder / "trials.csv").is_file():
            notes.append(f"{folder}: the sweep has not ended; continue it with resume")
            continue
        table = pd.read_csv(folder / "trials.csv", index_col="trial")
        best = pd.read_csv(folder / "trajectory.csv").iloc[:, 1]  # the metric's best so far, the goal at the end
        goal = "max" if best.iloc[-1] >= table[best.name].max() > table[best.name].min() else "min"
        chosen = request.metric.split(",") if request.metric else None
        figure = plots.sweep(table, pd.read_csv(folder / "epochs.csv"), str(best.name), goal, chosen)
        more = "" if len(found) == 1 else "-" + "-".join(folder.relative_to(request.directories[0]).parts)
        files.append(request.file(folder / "sweep" if request.save is None else Path("sweep"), more=more))
        plots.save(figure.axes[0], files[-1])
    if not files:
        raise InvalidArgument("; ".join(notes) or f"{request.directories[0]}: no sweep.json here or below")
    return plots.Drawn(files, notes)


_ACROSS = 3  # panels beside each other


def _quantities(summary: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    """Select the rows of a quantity, named as `busy` or `machine.busy`; by default all that ever were above zero."""
    if metric is None:
        moving = summary.groupby(["of", "metric"])["peak"].transform("max") > 0
        return summary[moving] if moving.any() else summary
    full = summary["of"] + "." + summary["metric"]
    chosen = summary[(summary["metric"] == metric) | (full == metric)]
    if chosen.empty:
        raise InvalidArgument(f"--metric {metric}: these runs have {', '.join(dict.fromkeys(full))}")
    return chosen


def _drawn(summary: pd.DataFrame) -> Axes:
    """Speedup curves where there is a baseline to normalise by; rates where only a suite's runs are."""

    if summary["normalized"].isna().all() and (summary["mode"] == "shares").all():
        return plots.rates(summary, figure.Figure(figsize=(6.4, 1 + 0.3 * len(summary))).subplots())
    return plots.throughput(summary, figure.Figure(figsize=(6.4, 4.0)).subplots())


def _name(table: pd.DataFrame) -> str:
    """Device and job; of a suite, its name."""
    first = table.iloc[0]
    return f"{first['device']}-{first['plan'] if first['kind'] in ('suite', 'mila') else first['job']}"
