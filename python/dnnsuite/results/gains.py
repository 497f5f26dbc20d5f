# SPDX-License-Identifier: MIT
"""Gain of training many models as one array: each job's best array over one model at a time, and over processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .intervals import Interval, mean
from .summary import BASELINE, ratio_of, runs_of, unlike
from .table import complete

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GAINS", "gains", "gains_markdown"]

PER_CPU_SECOND = "throughput/CPU second"
_RATIOS = {  # name of a ratio: (the mode that is divided by, the metric)
    "over_serial": ("serial", "throughput"),
    "over_concurrent": ("concurrent", "throughput"),
    "cpu_over_serial": ("serial", PER_CPU_SECOND),
    "cpu_over_concurrent": ("concurrent", PER_CPU_SECOND),
}
GAINS = (
    "job",
    "precision",
    "B",
    *(f"{name}{end}" for name in _RATIOS for end in ("", "_low", "_high")),
    "runs",
)


def gains(table: pd.DataFrame, allow_unlike: bool = False) -> pd.DataFrame:
    """The best array of each job and precision, divided by one plain model alone and by the best concurrent processes.

    Columns `GAINS`. Best is the B with the largest mean rate, of arrays and of processes. Ratios are geometric means
    over repeats, whose runs share the machine's state, with 95 % intervals; the `cpu_` ones are of items per CPU
    second, which busy neighbours change little. NaN where nothing was measured.

    Raises:
        UnlikeRuns: as `summarize` does.
    """
    import pandas as pd

    table = complete(table)
    whole = table[table["replica"].isna()]
    notes = unlike(whole[whole["metric"] == "throughput"], allow_unlike)
    rows = []
    for (job, precision), cells in whole.groupby(["job", "precision"]):
        best = {mode: _best(cells, mode) for mode in ("hfta", "concurrent")}
        if best["hfta"] is None:
            continue
        # One plain model alone in single precision is what everything is divided by.
        serial = whole[(whole["job"] == job) & (whole["precision"] == BASELINE[1])]
        row: dict[str, Any] = {"job": job, "precision": precision, "B": best["hfta"]}
        for name, (mode, metric) in _RATIOS.items():
            other = (
                _cell(serial, "serial", 1, metric)
                if mode == "serial"
                else _cell(cells, mode, best[mode], metric)
            )
            found = ratio_of(_cell(cells, "hfta", best["hfta"], metric), other)
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))
        row["runs"] = len(_cell(cells, "hfta", best["hfta"], "throughput"))
        rows.append(row)
    made = pd.DataFrame(rows, columns=list(GAINS))
    made.attrs = {**table.attrs, "notes": [*table.attrs.get("notes", []), *notes]}
    return made


def _best(cells: pd.DataFrame, mode: str) -> int | None:
    """The B with the largest mean rate."""
    Bs = cells.loc[cells["mode"] == mode, "B"].unique()
    rates = {int(B): mean(_cell(cells, mode, int(B), "throughput")["value"]) for B in Bs}
    known = {B: rate for B, rate in rates.items() if rate == rate}
    return max(known, key=lambda B: known[B]) if known else None


def _cell(cells: pd.DataFrame, mode: str, B: int | None, metric: str) -> pd.DataFrame:
    """Measured runs of one point by one metric."""
    chosen = cells[(cells["mode"] == mode) & (cells["B"] == B) & (cells["metric"] == metric)]
    return runs_of(chosen.assign(metric="throughput"))


def gains_markdown(found: pd.DataFrame) -> str:
    """The rows as a Markdown table of ratios with their intervals."""
    heads = (
        "workload",
        "best B",
        "over serial",
        "over concurrent",
        "per CPU second: over serial",
        "over concurrent",
    )
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in found.to_dict("records"):
        name = str(row["job"]) if row["precision"] == BASELINE[1] else f"{row['job']}, {row['precision']}"
        ratios = [_shown(row, ratio) for ratio in _RATIOS]
        lines.append("| " + " | ".join((name, str(row["B"]), *ratios)) + " |")
    return "\n".join(lines) + "\n"


def _shown(row: Mapping[Any, Any], name: str) -> str:
    ratio = Interval(*(float(row[f"{name}{end}"]) for end in ("", "_low", "_high")))
    if ratio.mean != ratio.mean:
        return "–"
    between = "" if ratio.low != ratio.low else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    return f"{ratio.mean:.2f}{between}"
