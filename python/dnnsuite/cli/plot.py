# SPDX-License-Identifier: MIT
"""`dnnsuite plot`: the speedup curve of finished runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Optional

import typer

from ._options import Json

__all__ = ["plot"]


def plot(
    directory: Annotated[
        Path, typer.Argument(help="A workflow's output, or a tree of HFTA's timing.csv files.")
    ],
    save: Annotated[Optional[Path], typer.Option(help="PREFIX of the .csv and .png to write.")] = None,  # noqa: UP045
    as_json: Json = False,
) -> int:
    """Draw normalised throughput over B from finished runs, and write it as CSV."""
    from matplotlib.figure import Figure

    from .. import plots, results

    table = results.load(directory)
    first = table.iloc[0]
    prefix = save or directory / f"{first['device']}-{first['job']}"
    axes = plots.throughput(results.summarize(table), Figure(figsize=(6.4, 4.0)).subplots())
    files = [prefix.with_name(prefix.name + suffix) for suffix in (".csv", ".png")]
    results.save_csv(results.wide(table), files[0], index=True)
    plots.save(axes, files[1])
    print(json.dumps({"files": [str(path) for path in files]}) if as_json else "\n".join(map(str, files)))
    return 0
