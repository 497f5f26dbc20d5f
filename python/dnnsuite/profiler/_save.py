# SPDX-License-Identifier: MIT
"""A profile as files: CSV per table with the definitions beside, a trace, figures, the record and the summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .._files import OutputError, write_json, write_text
from ..results import save_csv
from ._figures import bars, save_figure, timeline
from ._instrument import definitions
from ._roof import under_the_roofs
from ._summary import record, summary

if TYPE_CHECKING:
    from ._profile import Profile

__all__ = ["save"]


def save(profile: Profile, directory: Path) -> list[Path]:
    """Write everything into `directory`, which is made; returns the files.

    Raises:
        OutputError: the directory cannot be made, or a file cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {directory}: {error.strerror or error}") from error
    files = []
    for name, table in profile.tables.items():
        files.append(directory / f"{name}.csv")
        save_csv(table, files[-1])
    files += [directory / name for name in ("definitions.json", "profile.json", "summary.txt")]
    write_json(files[-3], {name: definitions(table) for name, table in profile.tables.items()})
    write_json(files[-2], record(profile))
    write_text(files[-1], summary(profile))
    if profile.active:
        files.append(profile.to_chrome_trace(directory / "trace.json.gz"))
        files += _draw(profile, directory)
    return files


def _draw(profile: Profile, directory: Path) -> list[Path]:
    from matplotlib.figure import Figure

    from .roofline import draw

    files = []
    if "phases" in profile.tables or "ops" in profile.tables or "kernels" in profile.tables:
        files.append(directory / "timeline.png")
        save_figure(timeline(profile.tables, Figure(figsize=(10, 3)).subplots()), files[-1])
    roof = under_the_roofs(profile)
    if roof is not None:
        files += [directory / "roofline.csv", directory / "roofline.png"]
        save_csv(roof.table, files[-2])
        save_figure(draw(roof.peaks, roof.table, Figure(figsize=(6.4, 4)).subplots(), roof.lanes), files[-1])
    if "breakdown" not in profile.tables:
        return files
    height = 1.2 + 0.3 * len(profile.breakdown)
    files.append(directory / "breakdown.png")
    save_figure(bars(profile.breakdown, Figure(figsize=(6.4, height)).subplots()), files[-1])
    return files
