# SPDX-License-Identifier: MIT
"""Gain of training many models as one array: each job's best array over one model at a time, and over processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._shown import ratio
from .intervals import mean
from .summary import BASELINE, ratio_of, runs_of, unlike
from .table import complete

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GAINS", "PER_CPU_SECOND", "gains", "gains_markdown"]

PER_CPU_SECOND = "throughput/CPU second"
_RATIOS = ("over_serial", "over_concurrent")
GAINS = (
    "job",
    "precision",
    "B",
    *(f"{name}{end}" for name in _RATIOS for end in ("", "_low", "_high")),
    "runs",
)


def gains(table: pd.DataFrame, metric: str = "throughput", allow_unlike: bool = False) -> pd.DataFrame:
    """Divide the best array of each job and precision by one plain model alone and by the best concurrent processes.

    Columns `GAINS`. Best is the B with the largest mean rate, of arrays and of processes. Ratios are geometric means
    over repeats, whose runs share the machine's state, with 95 % intervals. NaN where nothing was measured.

    Args:
        metric: rates to divide; `PER_CPU_SECOND` are those that busy neighbours change little.

    Raises:
        UnlikeRuns: the runs must not be pooled; see `summarize`.
    """
    import pandas as pd

    table = complete(table)
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
        for name, other in zip(
            _RATIOS, (_cell(alone, "serial", 1), _best(cells, "concurrent")[1]), strict=True
        ):
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), ratio_of(best, other), strict=True))
        rows.append({**row, "runs": len(best)})
    made = pd.DataFrame(rows, columns=list(GAINS))
    made.attrs = {**table.attrs, "notes": [*table.attrs.get("notes", []), *notes]}
    return made


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
    """Return the rows as a Markdown table of ratios with their intervals."""
    heads = ("workload", "best B", "over serial", "over concurrent")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in found.to_dict("records"):
        name = str(row["job"]) if row["precision"] == BASELINE[1] else f"{row['job']}, {row['precision']}"
        ratios = [_shown(row, of) for of in _RATIOS]
        lines.append("| " + " | ".join((name, str(row["B"]), *ratios)) + " |")
    return "\n".join(lines) + "\n"


def _shown(row: Mapping[Any, Any], name: str) -> str:
    return ratio(*(float(row[f"{name}{end}"]) for end in ("", "_low", "_high")))
