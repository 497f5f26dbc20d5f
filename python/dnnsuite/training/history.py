# SPDX-License-Identifier: MIT
"""Epochs of a run as they end: metrics.csv always, TensorBoard's event files where it is installed."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._files import whole_lines, write_text
from ..errors import Error, reason

__all__ = [
    "METRICS_FILE", "MODEL", "TENSORBOARD_FOLDER", "EventFiles", "Row", "read_metrics", "read_rows", "save_metrics",
    "save_rows",
]  # fmt: skip

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
