# SPDX-License-Identifier: MIT
"""`dnnsuite plot`: figures of finished runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ._options import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["plot"]


def plot(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Outputs of workflows or suites, or a tree of HFTA's timing.csv files.", show_default=False
        ),
    ],
    save: Annotated[Optional[Path], typer.Option(help="PREFIX of the .csv and .png to write.")] = None,  # noqa: UP045
    allow_unlike: Annotated[
        bool, typer.Option("--allow-unlike", help="Pool runs of unlike machines or jobs, with a note.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Draw normalised throughput over B from finished runs (of a suite, each job's rate), and write it as CSV."""
    from .. import plots, results

    table = results.load(*directories)
    summary = results.summarize(table, allow_unlike)
    for sentence in (*table.attrs["problems"], *summary.attrs["notes"]):
        print(f"dnnsuite: {sentence}", file=sys.stderr)
    prefix = save or directories[0] / _name(table)
    axes = _drawn(summary)
    files = [prefix.with_name(prefix.name + suffix) for suffix in (".csv", ".png")]
    results.save_csv(results.wide(table, allow_unlike), files[0], index=True)
    plots.save(axes, files[1])
    print(json.dumps({"files": [str(path) for path in files]}) if as_json else "\n".join(map(str, files)))
    return 0


def _drawn(summary: pd.DataFrame) -> Axes:
    """Speedup curves where there is a baseline to normalise by; rates where only a suite's runs are."""
    from matplotlib.figure import Figure

    from .. import plots

    if summary["normalized"].isna().all() and (summary["mode"] == "shares").all():
        return plots.rates(summary, Figure(figsize=(6.4, 1 + 0.3 * len(summary))).subplots())
    return plots.throughput(summary, Figure(figsize=(6.4, 4.0)).subplots())


def _name(table: pd.DataFrame) -> str:
    """Device and job; of a suite, its name."""
    first = table.iloc[0]
    return f"{first['device']}-{first['plan'] if first['kind'] in ('suite', 'mila') else first['job']}"
