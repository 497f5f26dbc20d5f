# SPDX-License-Identifier: MIT
"""Files of a comparison of convergence: losses as CSV, the figure, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import results
from ..._files import read_json, write_json
from ..._lazy import pandas as pd
from ...errors import InvalidArgument, reason
from .settings import ConvergenceSettings
from .verdict import Verdict

if TYPE_CHECKING:
    from ...plots import Drawn, Request


def write_outputs(
    root: Path, settings: ConvergenceSettings, read: Mapping[str, Mapping[str, Any]], verdict: Verdict
) -> list[Path]:
    """Write `convergence.csv`, `convergence.png` and `verdict.json`; returns their paths."""
    from matplotlib.figure import Figure  # without pyplot: no display is looked for, no state is kept

    from ... import plots

    files = [root / name for name in ("convergence.csv", "convergence.png", "verdict.json")]
    table = table_of(settings.lrs, read)
    results.save_csv(table, files[0], index=True)
    axes = plots.convergence(table, settings.smooth, Figure(figsize=(6.4, 4.0)).subplots())
    axes.set_title(f"{settings.job} {settings.precision}: {verdict.word}")
    plots.save(axes, files[1])
    write_json(files[2], verdict.to_dict())
    return files


def draw(request: Request) -> Drawn:
    """Draw a comparison from its `convergence.csv`.

    Raises:
        InvalidArgument: there are several directories, or one without that file.
    """
    from matplotlib.figure import Figure

    from ... import plots

    if len(request.directories) != 1 or request.metric is not None:
        raise InvalidArgument("--kind convergence draws one comparison, and has no --metric")
    (root,) = request.directories
    try:
        table = pd.read_csv(root / "convergence.csv", index_col="iteration")
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{root}: no comparison of convergence here ({reason(error)})") from error
    verdict = read_json(root / "verdict.json") if (root / "verdict.json").is_file() else {}
    axes = plots.convergence(table, int(verdict.get("smooth", 1)), Figure(figsize=(6.4, 4.0)).subplots())
    axes.set_title(str(verdict.get("verdict", "")))
    files = request.files(root / "convergence")
    results.save_csv(table, files[0], index=True)
    plots.save(axes, files[1])
    return plots.Drawn(files)


def table_of(lrs: list[float], read: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Losses by iteration, a column `{way}:{learning rate}` each."""
    columns = {
        f"{way}:{lr:g}": [row[index] for row in read[way]["losses"]]
        for way in ("serial", "hfta", "control")
        for index, lr in enumerate(lrs)
    }
    table = pd.DataFrame(columns, dtype=float)
    table.index.name = "iteration"
    return table
