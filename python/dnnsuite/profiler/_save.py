# SPDX-License-Identifier: MIT
"""A profile as files: CSV per table with the definitions beside, a trace, figures, the record and the summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import plots
from .._files import OutputError, write_json, write_text
from .._lazy import pandas as pd
from ..errors import reason
from ..results import save_csv
from ._schedule import Phase
from .figures import bars, timeline
from .instrument import definitions
from .summary import record, summary, under_the_roofs
from .trace import export_trace

if TYPE_CHECKING:
    from .data import ProfileData


def save(profile: ProfileData, directory: Path, figures: bool = True) -> list[Path]:
    """Write everything, or all but the figures, into `directory`, which is made; return the files.

    Raises:
        OutputError: the directory cannot be made, or a file cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {directory}: {reason(error)}") from error
    files = []
    for name, table in profile.tables.items():
        files.append(directory / f"{name}.csv")
        save_csv(table, files[-1])
    files += [directory / name for name in ("definitions.json", "profile.json", "summary.txt")]
    write_json(files[-3], {name: definitions(table) for name, table in profile.tables.items()})
    write_json(files[-2], record(profile))
    write_text(files[-1], summary(profile))
    if profile.active:
        files.append(save_trace(profile.tables, directory / "trace.json.gz"))
        files += _draw(profile, directory) if figures else []
    return files


def save_trace(tables: dict[str, pd.DataFrame], path: Path) -> Path:
    """Write a profile's tables as a trace for Perfetto or chrome://tracing; observed steps are its first track."""
    steps = tables["steps"]
    observed = steps[steps["phase"] == Phase.ACTIVE.value]
    named = observed.assign(name=[f"step {number}" for number in observed["step"]], thread=0)
    shown = {name: table for name, table in tables.items() if name not in ("steps", "steps_cpu")}
    return export_trace({"steps": named, **shown}, path)


def _draw(profile: ProfileData, directory: Path) -> list[Path]:
    from matplotlib.figure import Figure

    from .roofline import draw

    files = []
    if "phases" in profile.tables or "ops" in profile.tables or "kernels" in profile.tables:
        files.append(directory / "timeline.png")
        plots.save(timeline(profile.tables, Figure(figsize=(10, 3)).subplots()), files[-1])
    roof = under_the_roofs(profile)
    if roof is not None:
        files += [directory / "roofline.csv", directory / "roofline.png"]
        save_csv(roof.table, files[-2])
        plots.save(draw(roof.peaks, roof.table, Figure(figsize=(6.4, 4)).subplots(), roof.lanes), files[-1])
    breakdown = profile.tables.get("breakdown")
    if breakdown is None:
        return files
    height = 1.2 + 0.3 * len(breakdown)
    files.append(directory / "breakdown.png")
    plots.save(bars(breakdown, Figure(figsize=(6.4, height)).subplots()), files[-1])
    return files
