# SPDX-License-Identifier: MIT
"""Outputs of a workflow for a reader: CSV files, a figure and a table."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import results
from .._lazy import pandas as pd
from .._runs.turns import Goal, Known
from .._shown import rate, ratio
from ..errors import Error, InvalidArgument
from . import partial
from .metrics import UNSETTLED
from .settings import WorkflowSettings

if TYPE_CHECKING:
    from rich.console import Console

ROW_NAMES = ("mode", "precision", "B", "rate", "normalized (95 %)", "runs", "status")


def file_stem(settings: WorkflowSettings) -> str:
    """Device, its model if it is known, and job: `cpu-bert`, `cuda-h200-bert`."""
    return "-".join(part for part in (settings.device, settings.device_model, settings.job) if part)


def write_outputs(
    root: Path, settings: WorkflowSettings
) -> tuple[pd.DataFrame | None, pd.DataFrame | None, list[Path]]:
    """Write the outputs of the finished runs in `root`; return (table, summary, files), None and none without a run.

    `results.csv` has every metric of every run, `<device>-<job>.csv` throughput in HFTA's columns and the PNG
    the curves, if anything could be normalised.
    """
    try:
        table = results.load(root)
    except Error:
        if any((root / "runs").glob("[!.]*")):
            raise
        return None, None, []
    # They are of one plan, which --resume lets nobody continue elsewhere; what differs all the same is a remark.
    summary = results.summarize(table, allow_unlike=True)
    stem = file_stem(settings)
    files = [root / f"{stem}.csv", root / "results.csv"]
    results.save_csv(results.wide(table, allow_unlike=True), files[0], index=True)
    results.save_csv(table, files[1])
    partly_fused = partial.table_of(summary)
    if partly_fused is not None:
        files = [*partial.write(partly_fused, [root / "throughputs.csv", root / "throughputs.png"]), *files]
    else:
        with suppress(InvalidArgument):  # nothing is known well enough to be drawn
            _draw(summary, root / f"{stem}.png")
            files.insert(1, root / f"{stem}.png")
    return table, summary, files


def _draw(summary: pd.DataFrame, path: Path) -> None:
    from matplotlib.figure import Figure  # without pyplot: no display is looked for, no state is kept

    from .. import plots

    plots.save(plots.throughput(summary, Figure(figsize=(6.4, 4.0)).subplots()), path)


def rows(summary: pd.DataFrame | None, state: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the table as plain values: points measured, then those that were not, with the reason.

    A row whose speedup is not known has no numbers.
    """
    found: list[dict[str, Any]] = []
    if summary is not None:
        for row in summary.to_dict("records"):
            plain = {str(name): _plain(value) for name, value in row.items()}
            plain["status"] = _status(plain)
            if plain["status"].startswith("inconclusive"):
                plain |= dict.fromkeys(("rate", "rate_low", "rate_high", "normalized", "low", "high"))
            found.append(plain)
    found += [{"mode": mode, "status": f"unavailable: {why}"} for mode, why in state.get("unavailable", {}).items()]
    for key, search in state.get("search", {}).items():
        if not search["max_B"]:
            mode, precision = key.split("/")
            found.append({"mode": mode, "precision": precision, "status": f"failed: {search['message']}"})
    for precision, check in state.get("equality", {}).items():
        if not check.get("passed"):
            found.append({"mode": "hfta", "precision": precision, "status": "withheld: equality check failed"})
    return found


def _status(row: dict[str, Any]) -> str:
    """Say what a row is worth: ok, or why it is less."""
    if not row["runs"]:
        return f"failed: {row['failure']}"
    noted = (row.get("state") or "").split(results.SEPARATOR)
    told = next((each for each in noted if each.startswith(("inconclusive", "rough"))), "")
    where = next((each for each in noted if each.startswith("on ")), "")
    if told and row["runs"] > 1 and row["normalized"] and row["low"] and row["high"]:  # together they tell more
        found = Known(row["normalized"], row["low"], row["high"])
        verdict = Goal().verdict(found)
        told = "" if verdict == "ok" else f"{verdict}: {told.partition(': ')[2]}"
    known = [part for part in (told or "ok", where, UNSETTLED if UNSETTLED in noted else "") if part]
    return ", ".join([*known, *([f"{row['failed']} failed"] if row["failed"] else [])])


def remarks(table: pd.DataFrame | None, summary: pd.DataFrame | None = None) -> list[str]:
    """Remarks for a reader of the table: on runs that differ, and on the machine."""
    if table is None:
        return []
    notes = [] if summary is None else summary.attrs.get("notes", [])
    more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
    return [f"{note}{more}" for note in notes[:1]] + _about_machine(table)


def _about_machine(table: pd.DataFrame) -> list[str]:
    whole = table[(table["metric"] == "throughput") & table["replica"].isna()].dropna(subset=["value"])
    if not ((whole[["mode", "precision", "B"]] == list(results.BASELINE)).all(axis=1)).any():
        return ["not normalised: no serial fp32 run has finished in this workflow"]
    told = dict.fromkeys(
        note
        for notes in whole["disturbances"]
        for note in notes.split(results.SEPARATOR)
        if note and not note.startswith(("on ", "rough", "inconclusive", UNSETTLED))
    )
    return [f"the machine was not quiet: {note}" for note in list(told)[:1]]


def _plain(value: Any) -> Any:
    """Return a JSON value: no NaN, no numpy number."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


def print_table(console: Console, table_rows: list[dict[str, Any]]) -> None:
    """Print the rows: ruled on a terminal, as aligned columns elsewhere."""
    texts = [_texts(row) for row in table_rows]
    if console.is_terminal:
        from rich.table import Table

        table = Table(*ROW_NAMES)
        for text in texts:
            table.add_row(*text)
        console.print(table)
        return
    widths = [max(len(text[i]) for text in [ROW_NAMES, *texts]) for i in range(len(ROW_NAMES))]
    for text in [ROW_NAMES, *texts]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(text, widths, strict=True)).rstrip()
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _texts(row: dict[str, Any]) -> tuple[str, ...]:
    value, unit = row.get("rate"), row.get("unit", "")
    normalized, low, high = row.get("normalized"), row.get("low"), row.get("high")
    return (
        row["mode"], row.get("precision", ""), str(row.get("B", "")), "" if value is None else rate(value,
        unit), "" if normalized is None else ratio(normalized, low, high), str(row.get("runs", "")),
        row["status"],
    )  # fmt: skip
