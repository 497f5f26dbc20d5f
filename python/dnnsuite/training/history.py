# SPDX-License-Identifier: MIT
"""Epochs of a run as they end: metrics.csv always, TensorBoard's event files where it is installed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._files import write_text
from ..errors import Error

__all__ = ["METRICS_FILE", "TENSORBOARD_FOLDER", "EventFiles", "Row", "read_metrics", "save_metrics"]

METRICS_FILE, TENSORBOARD_FOLDER = "metrics.csv", "tb_logs"

Row = dict[str, float]


def save_metrics(folder: Path, rows: Sequence[Row]) -> None:
    """Write `metrics.csv` whole: a row per epoch, numbers to the last bit."""
    if not rows:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: repr(value) for name, value in row.items()} for row in rows])
    write_text(folder / METRICS_FILE, text.getvalue())


def read_metrics(folder: Path) -> list[Row]:
    """The rows of a run's `metrics.csv`.

    Raises:
        Error: it is missing or damaged; the message names it.
    """
    path = folder / METRICS_FILE
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    except (OSError, ValueError, TypeError) as error:
        raise Error(f"{path}: {error}") from error
    if not rows or "epoch" not in rows[0]:
        raise Error(f"{path}: no epochs in it")
    return rows


class EventFiles:
    """TensorBoard's files in `tb_logs`, with the tags of SC20's tutorial; the step is the epoch from 1.

    Attributes:
        note: why nothing is written; empty where it is.

    Args:
        folder: of the run.
        done: epochs that a resumed run has; later ones in the files are made void.
    """

    def __init__(self, folder: Path, done: int) -> None:
        self.note = ""
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self.note = "no TensorBoard files: pip install dnnsuite[tensorboard]"
            return
        self._writer = SummaryWriter(str(folder / TENSORBOARD_FOLDER), purge_step=done + 1 if done else None)

    def add(self, row: Row) -> None:
        """Write one epoch."""
        if self._writer is None:
            return
        epoch = int(row["epoch"])
        for name, value in row.items():
            kind, _, part = name.partition("/")
            if part in ("train", "valid") and kind != "seconds":
                self._writer.add_scalar(name, value, epoch)
        self._writer.add_scalar("learning_rate", row["learning_rate"], epoch)
        self._writer.flush()

    def close(self) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()
