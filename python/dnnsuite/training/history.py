# SPDX-License-Identifier: MIT
"""Epochs of a run: its place in them, and their files: metrics.csv always, models.csv of an array, TensorBoard's event
files where it is installed.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import whole_lines, write_text
from .._runs.rates import Sample
from ..errors import Error, reason

if TYPE_CHECKING:
    from .array import ExperimentArray

METRICS_FILE, TENSORBOARD_FOLDER = "metrics.csv", "tb_logs"
MODEL = "model"  # column of an array's models, by number

Row = dict[str, float]


def save_metrics(folder: Path, rows: Sequence[Row]) -> None:
    """Write `metrics.csv` whole: a row per epoch, of an array one per epoch and model; numbers to the last bit."""
    if rows:
        save_rows(folder / METRICS_FILE, [{name: repr(value) for name, value in row.items()} for row in rows])


def save_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows, of which there is one at least, as CSV, whole or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def read_rows(path: Path, value: Callable[[str], Any]) -> list[dict[str, Any]]:
    """Read what :func:`save_rows` wrote, each cell by `value`.

    Raises:
        Error: the file is missing or damaged; the message names it.
    """
    try:
        with open(whole_lines(path), newline="", encoding="utf-8") as file:
            return [{name: value(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise Error(f"{path}: {reason(error)}") from error


def read_metrics(folder: Path) -> list[Row]:
    """Read the rows of a run's `metrics.csv`: one per epoch, and in an array one per epoch and model.

    Raises:
        Error: the file is missing or damaged; the message names it.
    """
    path = folder / METRICS_FILE
    rows = read_rows(path, float)
    if not rows or "epoch" not in rows[0]:
        raise Error(f"{path}: no epochs in it")
    return rows


class EventFiles:
    """TensorBoard's files in `tb_logs`, with the tags of SC20's tutorial; the step is the epoch from 1.

    Each model of an array has a folder of its own in it, which TensorBoard shows as a run.

    Attributes:
        note: why nothing is written; empty where it is.

    Args:
        folder: directory of the run.
        done: epochs that a resumed run has; later ones in the files are made void.
        models: names of an array's models.
    """

    def __init__(self, folder: Path, done: int, models: Sequence[str] = ()) -> None:
        self.note = ""
        self._writers: list[Any] = []
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self.note = "no TensorBoard files: pip install dnnsuite[tensorboard]"
            return
        purge = done + 1 if done else None
        places = [f"{i}-{name.replace('/', '-')}" for i, name in enumerate(models)] or ["."]
        self._writers = [SummaryWriter(str(folder / TENSORBOARD_FOLDER / place), purge_step=purge) for place in places]

    def add(self, row: Row) -> None:
        """Write one epoch of one model."""
        if not self._writers:
            return
        epoch, writer = int(row["epoch"]), self._writers[int(row.get(MODEL, 0))]
        for name, value in row.items():
            kind, _, part = name.partition("/")
            if part in ("train", "valid") and kind != "seconds":
                writer.add_scalar(name, value, epoch)
        writer.add_scalar("learning_rate", row["learning_rate"], epoch)
        writer.flush()

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers:
            writer.close()


@dataclass
class Position:
    """Place in a run: `epoch` is the one under way, from 0; `iteration` the next in it; `step` over the run.

    Attributes:
        seconds: seconds of training in this epoch.
        minutes: minutes since the run began, validation included.
        best: the best score of each model so far, by its number.
        history: a row per epoch and model.
        samples: windows of training, for the rate of the whole run.
    """

    epoch: int = 0
    iteration: int = 0
    step: int = 0
    seconds: float = 0.0
    minutes: float = 0.0
    best: dict[int, float] = field(default_factory=dict)
    history: list[Row] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def improved(self, model: int, score: float) -> bool:
        """Note a model's score; True if it is the best so far."""
        better = score > self.best.get(model, -math.inf)
        if better:
            self.best[model] = score
        return better

    def of_model(self, model: int) -> dict[str, Any]:
        """Place of one model, as the checkpoint of a run of one model holds it; windows of an array are no model's."""
        rows = [_without_model(row) for row in self.history if row.get(MODEL, model) == model]
        own = any(MODEL in row for row in self.history)
        samples = [] if own else [list(sample) for sample in self.samples]
        return {
            **vars(self), "best": self.best.get(model, -math.inf), "history": rows, "samples": samples
        }  # fmt: skip

    def of_all(self) -> dict[str, Any]:
        """Place of all models of an array, as its checkpoint holds it."""
        history, samples = [dict(row) for row in self.history], [list(sample) for sample in self.samples]
        return {**vars(self), "best": dict(self.best), "history": history, "samples": samples}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Position:
        """Return the position that :meth:`of_model` or :meth:`of_all` made."""
        best = state["best"]
        samples = [Sample(*each) for each in state.get("samples", ())]
        best = dict(best) if isinstance(best, dict) else {0: best}
        return cls(**{**state, "best": best, "samples": samples})

    def rows(self, models: Sequence[int]) -> list[Row]:
        """Return the rows of the last epoch that these models ended."""
        return self.history[-len(models) :] if models else []


def _without_model(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != MODEL}


MODELS_FILE = "models.csv"


def model_rows(array: ExperimentArray, history: Sequence[Row], ended: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return a row per model: number, name, settings that differ, epochs, metrics of its last epoch, best accuracy,
    status."""
    own = [each.identity for each in array.experiments]
    differ = [key for key in own[0] if any(each.get(key) != own[0][key] for each in own)]
    rows = []
    for number, name in enumerate(array.names):
        mine = [row for row in history if row[MODEL] == number]
        row: dict[str, Any] = {"model": number, "name": name} | {key: own[number].get(key) for key in differ}
        row["epochs"] = len(mine)
        for column in (column for column in history[-1] if column.endswith("/valid")) if history else ():
            if not column.startswith("seconds"):
                row[column] = mine[-1][column] if mine else ""
        if history and "acc1/valid" in history[-1]:
            row["acc1/valid/best"] = max((each["acc1/valid"] for each in mine), default="")
        row["status"] = ended.get(number, "ok")
        rows.append(row)
    return rows


def save_models(folder: Path, array: ExperimentArray, history: Sequence[Row], ended: Mapping[int, str]) -> None:
    """Write `models.csv`: a row for each model of an array.

    Args:
        folder: directory of the run.
        array: the experiments.
        history: a row per epoch and model.
        ended: models that ended before the others, with the reason.
    """
    save_rows(folder / MODELS_FILE, model_rows(array, history, ended))


def read_models(folder: Path) -> list[dict[str, Any]]:
    """Read the rows of an array's `models.csv`; numbers as numbers, missing values as empty text.

    Raises:
        Error: it is missing or damaged; the message names it.
    """
    path = folder / MODELS_FILE
    rows = read_rows(path, _value)
    if not rows or not {"model", "name", "status"} <= rows[0].keys():
        raise Error(f"{path}: no models in it")
    return rows


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
