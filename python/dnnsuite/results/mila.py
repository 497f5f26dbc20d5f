# SPDX-License-Identifier: MIT
"""Results of mila-iqia/training, of either age."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._runs.record import FASTEST
from ..errors import Error
from .table import Row

__all__ = ["rows_of_mila"]


def rows_of_mila(directory: Path, name: str | None = None) -> tuple[list[Row], list[str]]:
    """(rows, a sentence for each damaged file or result) of the suite `name`, or of any.

    A folder holds one folder per run with one file per device (`<name>_<device>.json`), or one file per result
    (`<name>.<job>.R<run>.D<device>...`).
    """
    wanted = name or "*"
    patterns = (f"{wanted}[_.]*.json", f"{wanted}.json")
    rows, problems = [], []
    for path in sorted({path for pattern in patterns for path in directory.rglob(pattern)}):
        try:
            results = _results(path)
        except Error as error:
            problems.append(f"skipped: {error}")
            continue
        for index, result in enumerate(results):
            try:
                rows.append(_row(path, index, result, directory, name))
            except Error as error:
                problems.append(f"skipped: {error}")
    return _numbered(rows), problems


def _results(path: Path) -> list[Any]:
    """The results in a file: one, a list, or a list that was never closed, as the original suite leaves it."""
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{path}: {error}") from error
    if text.startswith("[") and not text.endswith("]"):
        text = re.sub(r",$", "", text) + "]"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Error(f"{path}: not a result of the suite: {error}") from error
    return found if isinstance(found, list) else [found]


def _row(path: Path, index: int, result: Any, directory: Path, name: str | None) -> Row:
    try:
        return _checked_row(path, index, result, directory, name)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Error(f"{path}: not a result of the suite: {error!r}") from error


def _checked_row(path: Path, index: int, result: Mapping[str, Any], directory: Path, name: str | None) -> Row:
    failure = _failure(result)
    rate = math.nan if failure else float(result["train_item"]["avg"])
    if not (math.isnan(rate) or 0 <= rate < FASTEST):
        raise ValueError(f"{rate} items per second: no rate is negative, or {FASTEST:g} and more")
    devices = str(result.get("vcd", ""))
    number = re.search(r"\.R(\w+)\.", path.name)
    plan = hashlib.sha256(f"mila:{directory.resolve()}".encode()).hexdigest()[:32]
    versions = [str(result[key])[:12] for key in ("unique_id", "version") if result.get(key)]
    return Row(
        job=str(result["name"]),
        precision="unknown",
        mode="shares",
        value=rate,
        seed_rate=rate,
        unit="items/s",
        item="items",
        seed_unit="items",
        status="failed" if failure else "ok",
        failure=failure,
        message={"nan": "a loss is not finite", "crash": "did not complete"}.get(failure or "", ""),
        run=number[1] if number else path.parent.relative_to(directory).as_posix(),
        kind="mila",
        plan=name or _plan_name(path),
        plan_id=plan,
        plan_path=str(directory),
        run_id=f"{plan}/{path.relative_to(directory).as_posix()}#{index}",
        share="all" if "," in devices else devices,
        job_version=" ".join(versions),
        gpus=str(result.get("gpu") or ""),
        hostname=str(result.get("hostname") or ""),
        path=str(path),
    )


def _failure(result: Mapping[str, Any]) -> str | None:
    if any(loss is None or math.isnan(loss) for loss in result.get("batch_loss") or ()):
        return "nan"
    return None if result.get("completed", True) else "crash"


def _plan_name(path: Path) -> str:
    """Name of the suite, taken from the file's."""
    return re.sub(r"(_\d+(,\d+)*|\..*)?\.json$", "", path.name)


def _numbered(rows: list[Row]) -> list[Row]:
    """The rows with `repeat` counting the runs, in the order of their names."""
    runs = sorted({row.run for row in rows}, key=lambda run: (len(run), run))
    return [replace(row, repeat=runs.index(row.run)) for row in rows]
