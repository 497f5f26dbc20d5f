# SPDX-License-Identifier: MIT
"""CSV of `nsys stats --format csv`, as the tables of :mod:`nvprof`.

Sums of kernels and copies (`cuda_gpu_kern_sum`, `cuda_gpu_mem_time_sum`), of the host's calls (`cuda_api_sum`,
`osrt_sum`), and the traces of both are read, by the names that versions since 2020 gave their columns, also where one
file has several reports with nsys's messages between them. Reports without times of kernels or calls are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .._lazy import pandas as pd
from . import nvprof
from ._text import BadFile, csv_line, fields_of, read_lines

_COUNTS = {"Instances", "Num Calls", "Count", "Calls"}
_NAMED = {
    "Average": "Avg", "Minimum": "Min", "Maximum": "Max", "Total Time": "Time", "Operation": "Name", "Strm": "Stream",
    "Instances": "Calls", "Count": "Calls",
}  # fmt: skip
_TIMES = {"Time", "Avg", "Med", "Min", "Max", "StdDev", "Start", "Duration"}
_UNITS = {"nsec": "ns", "usec": "us", "msec": "ms", "sec": "s", "ts_ns": "ns", "dur_ns": "ns", "": "ns"}
_FIELD = re.compile(r"(.+?)(?: ?\((\w+)\)|:(\w+))?")
_MESSAGES = ("Processing [", "Generating ", "Using ", "Exporting ", "SKIPPED", "NOTICE", "**", "#")


def is_header(line: str) -> bool:
    """Return True if a line is the header of a report with times of kernels or calls."""
    return bool(_header_of(line))


def read(path: str | Path) -> dict[str, pd.DataFrame]:
    """Read the reports of a file: tables `launches` and `api` as :func:`nvprof.read` has them, `metrics` empty.

    Raises:
        BadFile: no header that is known, no row, or a damaged row.
    """
    path = Path(path)
    lines = _as_nvprof(read_lines(path))
    if not any(lines):
        raise BadFile(
            path, "no report of kernels or calls of `nsys stats --format csv`: `Time (%)`, `Total Time`, `Name`"
        )
    return nvprof.of_lines(path, lines)


def _as_nvprof(lines: Sequence[str]) -> list[str]:
    """Rewrite the reports among the lines with nvprof's columns; the number of lines stays, all others are empty."""
    made, inside = [], False
    for line in lines:
        header = _header_of(line)
        inside = bool(header) or (header is None and inside and bool(line.strip()) and not line.startswith(_MESSAGES))
        made.append(header or (line if inside else ""))
    return made


def _header_of(line: str) -> str | None:
    """nvprof's header for that of a report; empty for one without times of kernels or calls, None for no header."""
    if "Time" not in line and "Duration" not in line and "Operation" not in line:
        return None
    fields = [_field(field) for field in fields_of(line)]
    names = {name for name, _ in fields}
    if {"Start", "Duration", "Name"} <= names and names & {"CorrId", "CorrID"}:
        return _header(fields)
    if names & _COUNTS and {"Time(%)", "Total Time"} <= names and names & {"Name", "Operation"}:
        return _header(fields)
    if names & _COUNTS and names & {"Operation", "Range", "Time(%)"}:
        return ""  # sizes of copies, ranges of NVTX, ...
    return None


def _field(text: str) -> tuple[str, str]:
    """Return (`Total Time`, `ns`) for `Total Time (ns)`; versions from 2020 write no unit where it is ns."""
    text = text.strip()
    if text.replace(" ", "") == "Time(%)":
        return "Time(%)", ""
    found = _FIELD.fullmatch(text)
    return (found[1], found[2] or found[3] or "") if found else (text, "")


def _header(fields: Sequence[tuple[str, str]]) -> str:
    """Return the header with nvprof's names; those that it does not have keep theirs, which :mod:`nvprof` overlooks."""
    named = [(_NAMED.get(name, name), unit) for name, unit in fields]
    titles = [f"{name}({_UNITS.get(unit, unit)})" if name in _TIMES else name for name, unit in named]
    return csv_line(titles)
