# SPDX-License-Identifier: MIT
"""Gain of training many models as one array: each job's best array over one model at a time, and over processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._shown import ratio as ratio_text
from .intervals import Interval, mean
from .summary import BASELINE, SPEEDUP, of_sessions, ratio_of, runs_of, unlike
from .table import complete

if TYPE_CHECKING:
    import pandas as pd

PER_CPU_SECOND = "throughput/CPU second"
_RATIOS = ("over_serial", "over_concurrent")
GAINS = (
    "job", "precision", "B", *(f"{name}{end}" for name in _RATIOS for end in ("", "_low", "_high")), "runs",
)  # fmt: skip


def gains(table: pd.DataFrame, metric: str = "throughput", allow_unlike: bool = False) -> pd.DataFrame:
    """Divide the rate of the best array by that of one plain model alone, and of the best concurrent processes.

    There is a row for each job and precision, with the columns `GAINS`. The best array, and the best number of
    processes, is that with the highest mean rate. Ratios come from runs that alternated if there are any, otherwise
    from geometric means over repeats, and have 95 % intervals. Values that were not measured are NaN.

    Args:
        table: runs, from :func:`dnnsuite.results.load`.
        metric: rates to divide; `PER_CPU_SECOND` are rates that change little on a busy machine.
        allow_unlike: pool runs of different machines or jobs.

    Raises:
        UnlikeRuns: the runs must not be pooled; see `summarize`.
    """
    import pandas as pd

    table = complete(table)
    paired = table[(table["metric"] == SPEEDUP) & table["replica"].isna()] if metric == "throughput" else table[:0]
    whole = table[table["replica"].isna() & (table["metric"] == metric)].assign(metric="throughput")
    notes = unlike(whole, allow_unlike)
    rows = []
    for (job, precision), cells in whole.groupby(["job", "precision"]):
        # One plain model alone in single precision is what everything is divided by.
        alone = whole[(whole["job"] == job) & (whole["precision"] == BASELINE[1])]
        B, best = _best(cells, "hfta")
        if B is None:
            continue
        row: dict[str, Any] = {"job": job, "precision": precision, "B": B}
        other_B, others = _best(cells, "concurrent")
        mine, theirs = (
            of_sessions(
                paired[
                    (paired["job"] == job) & (paired["precision"] == precision)
                    & (paired["mode"] == mode) & (paired["B"] == number)
                ]
            )
            for mode, number in (("hfta", B), ("concurrent", other_B))
        )  # fmt: skip
        ratios = (
            ratio_of(best, _cell(alone, "serial", 1)) if math.isnan(mine.mean) else mine,
            ratio_of(best, others) if math.isnan(mine.mean + theirs.mean) else _divided(mine, theirs),
        )
        for name, ratio in zip(_RATIOS, ratios, strict=True):
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), ratio, strict=True))
        rows.append({**row, "runs": len(best)})
    made = pd.DataFrame(rows, columns=list(GAINS))
    made.attrs = {**table.attrs, "notes": [*table.attrs.get("notes", []), *notes]}
    return made


def _divided(one: Interval, other: Interval) -> Interval:
    """Return the ratio of two speedups over the same baseline."""
    value = one.mean / other.mean
    half = math.hypot(math.log(one.high / one.low), math.log(other.high / other.low)) / 2
    return Interval(value, value * math.exp(-half), value * math.exp(half))


def _best(cells: pd.DataFrame, mode: str) -> tuple[int | None, pd.DataFrame]:
    """Return the B with the largest mean rate, and its runs."""
    runs = {int(B): _cell(cells, mode, int(B)) for B in cells.loc[cells["mode"] == mode, "B"].unique()}
    rates = {B: mean(each["value"]) for B, each in runs.items() if len(each)}
    B = max(rates, key=lambda B: rates[B]) if rates else None
    return B, _cell(cells, mode, 0) if B is None else runs[B]


def _cell(cells: pd.DataFrame, mode: str, B: int) -> pd.DataFrame:
    """Measured runs of one point."""
    return runs_of(cells[(cells["mode"] == mode) & (cells["B"] == B)])


def gains_markdown(found: pd.DataFrame) -> str:
    """Render the result of :func:`gains` as a Markdown table of ratios with their intervals."""
    heads = ("workload", "best B", "over serial", "over concurrent")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in found.to_dict("records"):
        name = str(row["job"]) if row["precision"] == BASELINE[1] else f"{row['job']}, {row['precision']}"
        ratios = [_shown(row, of) for of in _RATIOS]
        lines.append("| " + " | ".join((name, str(row["B"]), *ratios)) + " |")
    return "\n".join(lines) + "\n"


def _shown(row: Mapping[Any, Any], name: str) -> str:
    return ratio_text(*(float(row[f"{name}{end}"]) for end in ("", "_low", "_high")))
