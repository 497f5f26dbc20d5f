# SPDX-License-Identifier: MIT
"""Files of activity records, for analysis on another machine, by a later version, or in a test."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._files import replacing
from ..._lazy import pandas as pd
from ...errors import Error
from .tables import TABLES, join_columns, tables_of

_FORMAT = 1


class ActivityRecording(NamedTuple):
    """Tables and windows of a file, as :func:`load_records` returns them."""

    tables: dict[str, pd.DataFrame]
    windows: list[tuple[int, int]]


Recording = ActivityRecording  # its earlier name, which stays


def save_records(
    path: Path,
    parts: Sequence[Mapping[str, Any]],
    windows: Sequence[tuple[int, int]],
    functions: Mapping[tuple[int, int], str],
) -> None:
    """Write the decoder's results of each window; the file is whole or absent.

    Args:
        functions: names of host calls by domain and number, which only the recording library can resolve.

    Raises:
        OutputError: the file cannot be written.
    """
    columns, strings = join_columns(parts)
    about = {
        "format": _FORMAT,
        "strings": strings,
        "windows": [list(window) for window in windows],
        "functions": [[domain, number, name] for (domain, number), name in functions.items()],
    }
    arrays = {f"{table}/{name}": values for table, each in columns.items() for name, values in each.items()}
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]


def load_records(path: str | Path) -> ActivityRecording:
    """Tables and windows from a file of :meth:`ActivityInstrument.save`.

    Raises:
        Error: the file is missing, damaged, or of a later format; the message names it.
    """
    try:
        columns, about = _read(Path(path).read_bytes())
        if about["format"] != _FORMAT:
            raise Error(f"{path}: records of format {about['format']}; this version reads format {_FORMAT}")
        names = {(domain, number): name for domain, number, name in about["functions"]}
        tables = tables_of(columns, about["strings"], lambda domain, number: names.get((domain, number), ""))
        windows = [(int(begin), int(end)) for begin, end in about["windows"]]
        return ActivityRecording({name: tables[name] for name in TABLES}, windows)
    except Error:
        raise
    except Exception as error:  # zip, zlib, numpy, JSON and pandas each have their own for damaged bytes
        raise Error(f"{path}: not a file of activity records, or a damaged one: {error!r}") from error


def _read(data: bytes) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    columns: dict[str, dict[str, Any]] = {}
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        for key in file.files:
            table, _, name = key.partition("/")
            if name:
                columns.setdefault(table, {})[name] = file[key]
        return columns, json.loads(str(file["about"]))
