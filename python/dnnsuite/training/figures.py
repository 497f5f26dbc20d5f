# SPDX-License-Identifier: MIT
"""Figures of training runs: accuracy against epoch and against minutes, with SC20's own curves as a reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .._files import read_json
from .._runs.reading import RUN_FILE, read_run
from ..errors import InvalidArgument
from ..plots import save
from .history import Row, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["REFERENCE", "accuracy", "draw"]

REFERENCE = Path(__file__).parent / "configurations" / "sc20_curves.json"  # of CIFAR-100, on V100s

_AXES = {"epoch": "Epoch", "minutes": "Minutes"}


def accuracy(
    folders: Sequence[str | Path], against: str = "epoch", reference: bool = False, ax: Axes | None = None
) -> Axes:
    """Draw validation accuracy of runs, a line each, named by configuration and data.

    Args:
        folders: of training runs; runs under way are drawn as far as they are.
        against: `epoch` or `minutes`.
        reference: add SC20's curve, dashed, of each configuration that has one.
        ax: where to draw; a new figure by default.

    Raises:
        InvalidArgument: `against` is neither, or there is no run to draw.
        Error: a run's metrics.csv is damaged.
    """
    if against not in _AXES:
        raise InvalidArgument(f"against is {against!r}; accepted: {', '.join(_AXES)}")
    if not folders:
        raise InvalidArgument("no training run to draw")
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, 4.0))[1]
    for folder in map(Path, folders):
        name, data = _name(folder)
        (line,) = ax.plot(*_curve(read_metrics(folder), against), marker=".", label=f"{name} ({data})")
        points = _reference(name, against) if reference else []
        if points:
            colour, label = line.get_color(), f"{name} (SC20, CIFAR-100 on V100s)"
            ax.plot(*zip(*points, strict=True), linestyle="--", color=colour, alpha=0.6, label=label)
    ax.set_xlabel(_AXES[against])
    ax.set_ylabel("Validation accuracy (top 1)")
    ax.set_ylim(0, 1)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def draw(folders: Sequence[str | Path], prefix: Path, reference: bool = False) -> list[Path]:
    """Write `<prefix>-epoch.png` and `<prefix>-minutes.png`; raises as :func:`accuracy`."""
    import matplotlib.pyplot as plt

    made = []
    for against in _AXES:
        ax = accuracy(folders, against, reference)
        path = prefix.with_name(f"{prefix.name}-{against}.png")
        save(ax, path)
        plt.close(ax.figure.figure)
        made.append(path)
    return made


def _name(folder: Path) -> tuple[str, str]:
    """(configuration, data) of a run; of one under way, the folder's name."""
    path = folder / RUN_FILE
    if not path.is_file():
        return folder.resolve().name, "under way"
    record = read_run(path)
    return record.job, record.data


def _curve(rows: list[Row], against: str) -> tuple[list[float], list[float]]:
    return [row[against] for row in rows], [row["acc1/valid"] for row in rows]


def _reference(name: str, against: str) -> list[tuple[float, float]]:
    """(epoch or minutes, accuracy) of the original's run; empty where it has none."""
    found = read_json(REFERENCE).get(name)
    if found is None:
        return []
    minutes = found["seconds_per_epoch"] / 60
    scale = 1.0 if against == "epoch" else minutes
    return [(epoch * scale, value) for epoch, value in enumerate(found["acc1/valid"], 1)]
