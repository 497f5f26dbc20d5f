# SPDX-License-Identifier: MIT
"""Figures of training runs: accuracy or loss against epoch and against minutes, with SC20's own curves beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._files import read_json
from .._runs.reading import RUN_FILE, read_run
from ..errors import InvalidArgument, check_choice, did_you_mean, some_of
from ..plots import Drawn, save
from .history import METRICS_FILE, MODEL, Row, read_metrics, save_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..plots import Request

REFERENCE = Path(__file__).parent / "configurations" / "sc20_curves.json"  # of CIFAR-100, on V100s

_AXES = {"epoch": "Epoch", "minutes": "Minutes"}
_REAL = "CIFAR-100"


def curves(
    folders: Sequence[str | Path],
    against: str = "epoch",
    metric: str = "acc1",
    reference: bool | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a validation metric of runs, a line for each and for each model of an array, named by configuration, data.

    Args:
        folders: directories of training runs; those under way are drawn as far as they are.
        against: `epoch` or `minutes`.
        metric: acc1, acc5, loss, or another that the runs have.
        reference: add SC20's accuracy, dashed, for each configuration that has one; by default, for runs on CIFAR-100.
        ax: axes to draw on; those of a new figure by default.

    Raises:
        InvalidArgument: `against` is neither, or a run has no such metric.
        Error: a run's metrics.csv is missing or damaged.
    """
    check_choice("against is", against, _AXES)
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(6.4, 4.0)).subplots()
    for run in (each for folder in map(Path, folders) for each in _curves_of(folder)):
        (line,) = ax.plot(*run.points(against, metric), marker=".", label=f"{run.label} ({run.data})")
        wanted = run.data == _REAL if reference is None else reference
        points = _reference(run.name, against) if wanted and metric == "acc1" else []
        if points:
            label = f"{run.name} (SC20, {_REAL} on V100s)"
            beside = {each.get_label() for each in ax.get_lines()}
            if label not in beside:  # models of an array have one
                ax.plot(*zip(*points, strict=True), linestyle="--", color=line.get_color(), alpha=0.6, label=label)
    ax.set_xlabel(_AXES[against])
    ax.set_ylabel(f"Validation {metric}")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def drawn(request: Request) -> Drawn:
    """Draw `dnnsuite plot --kind accuracy`: a figure against epochs, one against minutes, and a CSV."""
    folders = [each for directory in request.directories for each in _runs(directory)]
    metric = request.metric or "acc1"
    stem = request.directories[0] / metric
    files = []
    for against in _AXES:
        files.append(request.file(stem, more=f"-{against}"))
        save(curves(folders, against, metric), files[-1])
    rows = []
    for run in (each for folder in folders for each in _curves_of(folder)):
        epochs, values = run.points("epoch", metric)
        for epoch, minutes, value in zip(epochs, run.points("minutes", metric)[0], values, strict=True):
            rows.append({"run": run.label, "data": run.data, "epoch": int(epoch), "minutes": minutes, metric: value})
    files.append(request.file(stem, ".csv"))
    save_rows(files[-1], rows)
    return Drawn(files)


def _runs(directory: Path) -> Iterator[Path]:
    """Yield the training runs at or directly below a directory."""
    found = [each for each in (directory, *sorted(directory.glob("*/"))) if (each / METRICS_FILE).is_file()]
    if not found:
        raise InvalidArgument(f"{directory}: no {METRICS_FILE} of a training run in it")
    yield from found


@dataclass(frozen=True)
class _Curve:
    """Epochs of one model: of a run, or of an array's.

    Attributes:
        name: name of the configuration.
        label: label of the line; in an array it names the model.
    """

    folder: Path
    name: str
    label: str
    data: str
    rows: list[Row]

    def points(self, against: str, metric: str) -> tuple[list[float], list[float]]:
        """Values of the axis and of the metric."""
        column = f"{metric}/valid"
        if column not in self.rows[0]:
            known = [
                name.removesuffix("/valid")
                for name in self.rows[0]
                if name.endswith("/valid") and not name.startswith("seconds")
            ]
            hint = did_you_mean(metric, known)
            raise InvalidArgument(f"{self.folder} has no metric {metric!r}{hint}; it has {some_of(known)}")
        return [row[against] for row in self.rows], [row[column] for row in self.rows]


def _curves_of(folder: Path) -> Iterator[_Curve]:
    """Yield the curves of a run: one, or one for each model of an array."""
    name, data, models = _name(folder)
    rows = read_metrics(folder)
    if MODEL not in rows[0]:
        yield _Curve(folder, name, name, data, rows)
        return
    for number in sorted({int(row[MODEL]) for row in rows}):
        label = f"{name}, {models[number] if number < len(models) else f'model {number}'}"
        yield _Curve(folder, name, label, data, [row for row in rows if row[MODEL] == number])


def _name(folder: Path) -> tuple[str, str, list[str]]:
    """Return (configuration, data, names of an array's models) of a run; of one under way, the folder's name."""
    path = folder / RUN_FILE
    if not path.is_file():
        return folder.resolve().name, "under way", []
    record = read_run(path)
    return record.job, record.data, [each["name"] for each in record.details.get("models", ())]


def _reference(name: str, against: str) -> list[tuple[float, float]]:
    """Return (epoch or minutes, accuracy) of the original's run; empty where it has none."""
    found = read_json(REFERENCE).get(name)
    if found is None:
        return []
    scale = 1.0 if against == "epoch" else found["seconds_per_epoch"] / 60
    return [(epoch * scale, value) for epoch, value in enumerate(found["acc1/valid"], 1)]
