# SPDX-License-Identifier: MIT
"""The load of the machine during runs in any mixture of directories, and its means over repeats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .._runs.monitor import MONITOR_FILE
from ..errors import Error, InvalidArgument
from . import pool
from .hfta_monitor import DCGM_FILE, rows_of_dcgm
from .intervals import half_width, mean
from .loading import load
from .monitor import MonitorRow, monitor_frame, rows_of_monitor
from .summary import by_mode

if TYPE_CHECKING:
    import pandas as pd

_CELL = ["job", "mode", "precision", "B", "of", "metric", "unit"]


def load_monitors(*directories: str | Path, allow_unlike: bool = False) -> pd.DataFrame:
    """Load the machine's load during every finished run below the directories: a row per run and quantity.

    Args:
        directories: see :func:`dnnsuite.results.load`; in a tree of HFTA, `dcgm_metrics.csv` is read.
        allow_unlike: accept runs of unlike machines or settings together.

    Returns:
        A table with the columns of :class:`MonitorRow`; `attrs["problems"]` and `attrs["notes"]` are as in `load`.

    Raises:
        InvalidArgument: a directory is missing, or no run in it was monitored.
        UnlikeRuns: the runs must not be pooled, and that is not allowed.
    """
    rows: list[MonitorRow] = []
    problems: list[str] = []
    notes: list[str] = []
    for directory in map(Path, directories):
        if any(directory.rglob(DCGM_FILE)):
            found, bad = rows_of_dcgm(directory)
        else:
            table = load(directory)
            if not allow_unlike:
                pool.refuse_unlike(table)
            found, bad = _of_runs(table)
            bad = [*table.attrs["problems"], *bad]
            notes += table.attrs["notes"]
        rows += found
        problems += bad
    if not rows:
        why = f" ({problems[0]})" if problems else ""
        raise InvalidArgument(
            f"{', '.join(map(str, directories))}: no run in it has a {MONITOR_FILE}{why}; "
            "earlier versions, and --monitor none, write none"
        )
    frame = monitor_frame(rows)
    frame.attrs = {"problems": problems, "notes": notes}
    return frame


def _of_runs(table: pd.DataFrame) -> tuple[list[MonitorRow], list[str]]:
    """Return (rows, a sentence for each run whose samples cannot be read, and one for those that have none)."""
    rows: list[MonitorRow] = []
    problems: list[str] = []
    without = 0
    finished = pool.ended_well(table).drop_duplicates("run_id")
    for run in finished["path"]:
        directory = Path(run)
        if not (directory / MONITOR_FILE).is_file():
            without += 1
            continue
        try:
            rows += rows_of_monitor(directory)
        except Error as error:
            problems.append(f"skipped: {error}")
    if without:
        problems.append(f"{without} of {len(finished)} runs have no {MONITOR_FILE}")
    return rows, problems


def summarize_monitors(table: pd.DataFrame) -> pd.DataFrame:
    """Average over repeats, by job, mode, precision, B and quantity.

    The columns are job, mode, precision, B, of, metric, unit, mean, low, high, peak and runs. `low` and `high` are the
    limits of a 95 % interval by Student's t over the repeats, NaN if there is only one; copies of a job that share the
    machine count as one. No quantity is negative, and neither is `low`. For a counter such as energy, `mean` is its
    increase during the window.

    Args:
        table: table from :func:`load_monitors`.
    """
    import pandas as pd

    table = table.assign(value=table["mean"].fillna(table["total"]))
    rows = []
    for cell, runs in table.groupby(_CELL, sort=False):
        values = runs.groupby(["plan_id", "repeat"])["value"].mean().tolist()
        average, half = mean(values), half_width(values)
        rows.append(
            (
                *cell, average, 0.0 if half > average else average - half, average + half, runs["peak"].max(),
                len(values),
            )
        )  # fmt: skip
    rows.sort(key=lambda row: (row[0], row[4], row[5], *by_mode(row[1], row[2]), row[3]))
    made = pd.DataFrame(rows, columns=[*_CELL, "mean", "low", "high", "peak", "runs"])
    made.attrs = dict(table.attrs)
    return made
