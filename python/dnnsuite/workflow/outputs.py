# SPDX-License-Identifier: MIT
"""Figures of a run from its turns: rate and speedup with intervals, per replica, per CPU second; and outputs of a
workflow for a reader: CSV files, a figure and a table.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import results
from .._lazy import pandas as pd
from .._runs import rates
from .._runs.record import Metric
from .._runs.turn_session import Session, Turn
from .._runs.turns import BUSY, Goal, Known
from .._shown import rate, ratio
from ..errors import Error, InvalidArgument
from ..results.summary import SPEEDUP
from . import modes
from .settings import WorkflowSettings

if TYPE_CHECKING:
    from rich.console import Console

Key = TypeVar("Key", bound=Hashable)

_DEFINITION = "items / time over the turns in which all replicas are active, through the loader, data wait included"
_BY_CPU_TIME = "items / CPU time of all replicas' turns on one core, whose other time neighbours had"
_PER_CPU_SECOND = "items / CPU time of all threads of all workers in the turns that nobody disturbed"
_ON_DEVICE = "items / time of one epoch on batches that lie on the device, summed over replicas"
UNSETTLED = "rated before its steps had settled"
_SPEEDUP = "rate / serial's rate of the same round, geometric mean over the rounds that nobody disturbed"


def on_device(results: Sequence[Mapping[str, Any]], unit: str, by_cpu_time: bool = False) -> tuple[Metric, ...]:
    """Return the rate without the loader, if every worker's result has one."""
    held = [result.get("on_device") for result in results]
    if not held or not all(held):
        return ()
    found = [each for each in held if each]
    if by_cpu_time:
        rate = sum(each["items"] for each in found) / max(sum(each["cpu_s"] for each in found), 1e-9)
    else:
        rate = sum(each["items"] / (each["stop_ns"] - each["start_ns"]) * 1e9 for each in found)
    return (Metric("throughput/data on device", rate, f"{unit}/s", definition=_ON_DEVICE),)


def measured(
    session: Session[Key], key: Key, results: Sequence[Mapping[str, Any]], unit: str, warm_up: int = 0
) -> tuple[tuple[Metric, ...], dict[str, Any], tuple[str, ...]]:
    """Return (metrics, window, disturbances) of a way that had turns.

    Args:
        results: results of its workers.
        unit: name of the items, as "sequences".
        warm_up: first rounds that do not count.
    """
    turns = session.kept(key, warm_up)
    by_cpu_time = all(turn.by_cpu_time for turn in turns)
    own, per_s = session.rounds.rate(key), f"{unit}/s"
    items, cpu_s = sum(turn.items for turn in turns), sum(turn.cpu_s for turn in turns)
    rate = items / cpu_s if by_cpu_time and cpu_s else _rate_of(turns)
    low, high = (rate * end / own.value if math.isfinite(end) else None for end in (own.low, own.high))
    definition = _BY_CPU_TIME if by_cpu_time else _DEFINITION
    metrics = [Metric("throughput", rate, per_s, low, high, definition=definition)]
    for i in range(len(turns[0].replicas)):
        alone = [Turn([turn.replicas[i]], 0.0) for turn in turns]
        steps = sum(len(turn.replicas[i]) for turn in turns)
        metrics += [
            Metric("throughput", _rate_of(alone), per_s, replica=i),
            Metric("time/step", sum(turn.seconds for turn in alone) / steps, "s", replica=i),
        ]
    found, verdict = session.known(key)
    if key == session.baseline:  # which nothing is compared with; its rate has an interval of its own
        verdict = "ok"
    if session.baseline is not None:
        below, above = (end if math.isfinite(end) else None for end in (found.low, found.high))
        metrics.append(Metric(SPEEDUP, found.value, "1", below, above, definition=_SPEEDUP))
    metrics += on_device(results, unit, by_cpu_time)
    if cpu_s > 0:
        metrics.append(Metric("throughput/CPU second", items / cpu_s, per_s, definition=_PER_CPU_SECOND))
    step_s = [
        (turn.replicas[0].stops_ns - turn.replicas[0].starts_ns) * 1e-9 / turn.replicas[0].items for turn in turns
    ]
    steady = rates.warmup(np.concatenate(step_s))
    spans = [rates.common_window(turn.replicas) for turn in turns]
    window = {
        "warm_up_rounds": warm_up, "warmup": [steady], "start_ns": min((span[0] for span in spans if span),
        default=None), "stop_ns": max((span[1] for span in spans if span), default=None),
        "spans_ns": [list(span) for span in spans if span], "seconds": sum(turn.seconds for turn in turns),
        "steps": [sum(len(turn.replicas[i]) for turn in turns) for i in range(len(turns[0].replicas))],
        "rounds": found.rounds, "pairs": found.pairs, "disturbed_rounds": session.disturbed(key),
        "verdict": verdict, "no_interval": found.why, "rate": definition,
    }  # fmt: skip
    return tuple(metrics), window, _noted(session, key, found, verdict)


def _noted(session: Session[Key], key: Key, found: Known, verdict: str) -> tuple[str, ...]:
    """Say what a reader must know of the machine: cores that neighbours had, rounds that they disturbed."""
    noted = [f"on {session.cores}"] if session.cores.shared else []
    if key in session.unsettled:
        noted.append(UNSETTLED)
    if verdict != "ok":
        reason = found.reason()
        if session.cores.shared and not reason.startswith(BUSY):
            reason = BUSY + reason
        return (*noted, f"{verdict}: {reason}")
    return (*noted, *([found.disturbed] if found.disturbed else []))


def _rate_of(turns: Sequence[Turn]) -> float:
    """Items per second in which all replicas were active."""
    seconds = sum(turn.seconds for turn in turns)
    items = sum(rates.rate(turn.replicas) * turn.seconds for turn in turns if turn.seconds)
    return items / seconds if seconds > 0 else math.nan


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
    partly_fused = modes.unfused_table(summary)
    if partly_fused is not None:
        files = [*modes.write_unfused(partly_fused, [root / "throughputs.csv", root / "throughputs.png"]), *files]
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
