# SPDX-License-Identifier: MIT
"""`models.csv`: a row per model of an array, with the settings that differ and the outcome of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import Error
from .array import ExperimentArray
from .history import MODEL, Row, read_rows, save_rows

__all__ = ["MODELS_FILE", "model_rows", "read_models", "save_models"]

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
