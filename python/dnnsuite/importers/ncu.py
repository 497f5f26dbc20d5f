# SPDX-License-Identifier: MIT
"""Reader of `ncu --csv`: its details page and its raw page, as one tidy table.

The details page has a row for each kernel and metric, the raw page a row for each kernel and, below its header, a row
of units. Both may stand after, between and before lines of ncu (`==PROF==`) and of the program that was profiled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._lazy import numpy as np
from .._lazy import pandas as pd
from ..profiler.instrument import define, definitions
from ._text import BadFile, fields_of, has_decimal_comma, numbers, read_lines, read_rows, to_base, with_points

# The columns that say which launch a row is about, by our name; versions of ncu differ in which there are.
_LAUNCH = {"process": "Process ID", "name": "Kernel Name", "device": "Device", "context": "Context", "stream": "Stream"}
_IDENTITY = {"ID", "Process Name", "Host Name", "Kernel Time", "Block Size", "Grid Size", "CC", *_LAUNCH.values()}
_DETAILS = {"ID", "Section Name", "Metric Name", "Metric Unit", "Metric Value", *_LAUNCH.values()}
_MEANINGS = {
    "kernel_id": "number of the launch in the file, from 0; its order is the file's",
    "process": "id of the process; ids of kernels begin anew in each",
    "name": "the kernel as ncu wrote it",
    "device": "number of the GPU; empty where this version of ncu does not write it",
    "context": "ncu's number of the context",
    "stream": "ncu's number of the stream",
    "section": "section of the report that the metric was printed in; empty on the raw page",
    "metric": "name of the metric",
    "unit": "base unit: ns, byte, Hz, cycle, %, ...; scaled units were converted",
    "value": "in that unit; NaN where ncu wrote n/a or a word",
    "text": "what was printed where it is a word; missing elsewhere",
}
# Units of what is counted: a sum of them has no decimals.
_COUNTED = {"inst", "sector", "request", "warp", "thread", "block", "cycle", "byte", "register/thread"}
_WHOLE = {"Elapsed Cycles", "Grid Size", "Block Size", "Threads", "Registers Per Thread"}
_QUOTED_ROW, _PLAIN_ROW = re.compile(r'"\d+",'), re.compile(r"\d+,")
_FEW_COMMAS = 4


def is_header(line: str) -> bool:
    """Return True if a line is the header of ncu's CSV."""
    return "Kernel Name" in line and {"ID", "Kernel Name"} <= {*_header(line)}


def _header(line: str) -> list[str]:
    return [field.strip() for field in fields_of(line)]


def read(path: str | Path) -> pd.DataFrame:
    """Read a file that `ncu --csv` wrote, details page or raw page.

    Returns:
        One row for each kernel and metric: kernel_id, process, name, device, context, stream, section, metric, unit,
        value, text. Rows of rules, which are advice and no metrics, are left out.

    Raises:
        BadFile: no header, no row, a damaged row, or a summary over launches, which has no launches in it.
    """
    path = Path(path)
    lines = read_lines(path)
    heads = [number for number, line in enumerate(lines) if "Kernel Name" in line and is_header(line)]
    if not heads:
        raise BadFile(path, _no_header(lines))
    parts, first = [], 0
    for begin, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        part = _one_page(path, lines, begin, end)
        if part is None:
            continue
        part["kernel_id"] += first
        first = int(part["kernel_id"].max()) + 1
        parts.append(part)
    if not parts:
        raise BadFile(path, "a header and no kernel below it: nothing was profiled, or the file is cut", heads[0] + 1)
    table = _joined(parts) if len(parts) > 1 else parts[0]
    if not table["kernel_id"].is_monotonic_increasing:  # processes alternate
        table = table.sort_values("kernel_id", kind="stable", ignore_index=True)
    return define(table, _MEANINGS)


def _no_header(lines: Sequence[str]) -> str:
    if any('"Invocations"' in line and '"Kernel Name"' in line for line in lines):
        return "a summary over launches (--print-summary); export each launch: `ncu --csv --page raw`"
    return 'no header with "ID" and "Kernel Name": not what `ncu --csv` prints, or its beginning is missing'


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    table = pd.concat(parts, ignore_index=True)
    for column in (*_LAUNCH, "section", "metric", "unit"):
        table[column] = table[column].astype("category")
    return table


def _one_page(path: Path, lines: Sequence[str], begin: int, end: int) -> pd.DataFrame | None:
    """Table below the header in line `begin` (from 0) and before line `end`; None when it is empty."""
    columns = _header(lines[begin])
    repeated = [name for number, name in enumerate(columns) if name in columns[:number]]
    if repeated:
        raise BadFile(path, f"column {repeated[0]!r} occurs twice", begin + 1)
    quoted = lines[begin].lstrip().startswith('"')
    is_row = (_QUOTED_ROW if quoted else _PLAIN_ROW).match
    at: list[int] = []
    others: list[int] = []
    for number in range(begin + 1, end):
        (at if is_row(lines[number]) else others).append(number)
    if quoted:
        _refuse_swallowed(path, lines, others)
    if not at:
        return None
    is_raw = "Metric Name" not in columns
    wanted = None if is_raw else [name for name in columns if name in _DETAILS]
    rows = read_rows(path, [lines[number] for number in at], [number + 1 for number in at], columns, wanted)
    if is_raw:
        return _raw(path, rows, _units_of(path, lines, begin, at[0], columns))
    missing = [name for name in ("Metric Unit", "Metric Value") if name not in columns]
    if missing:
        raise BadFile(path, f"no column {missing[0]!r} beside 'Metric Name'", begin + 1)
    return _details(path, rows)


def _refuse_swallowed(path: Path, lines: Sequence[str], others: Sequence[int]) -> None:
    """Rows that something stands before, as a program's output without an end of line, would silently be missing."""
    for number in others:
        line = lines[number]
        if line.count('","') > _FEW_COMMAS and not line.startswith('"",'):
            raise BadFile(path, "a row of ncu behind other output; put the row on its own line", number + 1)


def _units_of(path: Path, lines: Sequence[str], begin: int, first_row: int, columns: Sequence[str]) -> dict[str, str]:
    """Return the row of units between the header of a raw page and its first row."""
    for number in range(begin + 1, first_row):
        fields = fields_of(lines[number])
        if len(fields) == len(columns) and not fields[0].strip():
            return dict(zip(columns, (field.strip() for field in fields), strict=True))
    raise BadFile(path, "no row of units below the header of the raw page: the file is damaged", begin + 1)


def _kernel_ids(rows: pd.DataFrame) -> Any:
    """Numbers from 0 for each (process, ID) in the order of their appearance: processes may alternate."""
    keys = [name for name in ("Process ID", "ID") if name in rows]
    return rows.groupby(keys, observed=True, sort=False).ngroup().to_numpy("int64")


def _identity(rows: pd.DataFrame) -> dict[str, Any]:
    return {mine: _texts(rows, theirs) for mine, theirs in _LAUNCH.items()}


def _texts(rows: pd.DataFrame, column: str) -> Any:
    """Return the texts of a column; "" where this version of ncu does not write it."""
    return rows[column].array if column in rows else pd.Categorical.from_codes([0] * len(rows), pd.Index([""]))


def _details(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    is_metric = (rows["Metric Name"] != "").to_numpy(bool)  # rows of rules have none
    ids = _kernel_ids(rows)[is_metric]
    rows = rows[is_metric]
    texts = rows["Metric Value"]
    named = rows["Metric Name"].astype(str)
    whole = named.str.endswith(".sum") | named.isin(_WHOLE)
    whole &= rows["Metric Unit"].astype(str).isin(_COUNTED)
    if has_decimal_comma(texts.cat.categories, texts[whole].astype(str).unique()):
        texts = with_points(texts)
    values, words = numbers(path, texts)
    units = rows["Metric Unit"].cat
    factors, bases = _in_base_units(list(units.categories), units.codes.to_numpy())
    return pd.DataFrame(
        {
            "kernel_id": ids,
            **_identity(rows),
            "section": _texts(rows, "Section Name"),
            "metric": rows["Metric Name"].array,
            "unit": bases,
            "value": values * factors,
            "text": rows["Metric Value"].astype(object).where(words, None).array,
        }
    )


def _raw(path: Path, rows: pd.DataFrame, units: dict[str, str]) -> pd.DataFrame:
    # NVTX has columns, too: `thread Domain:Push/Pop_Range:PL_Type:...`
    metrics = [name for name in rows.columns if name not in _IDENTITY and not (":" in name and "Range" in name)]
    count, width = len(rows), len(metrics)
    values, texts = np.empty((count, width)), np.empty((count, width), dtype=object)
    texts[:] = None
    if _raw_has_decimal_comma(rows, metrics, units):
        rows = rows.assign(**{metric: with_points(rows[metric]) for metric in metrics})
    for number, metric in enumerate(metrics):
        found, words = numbers(path, rows[metric])
        values[:, number] = found
        texts[words, number] = rows[metric].astype(object).to_numpy()[words]
    tiled = np.tile(np.arange(width), count)
    factors, bases = _in_base_units([units[metric] for metric in metrics], tiled)
    return pd.DataFrame(
        {
            "kernel_id": _kernel_ids(rows).repeat(width),
            **{name: texts.repeat(width) for name, texts in _identity(rows).items()},
            "section": _texts(rows, "").repeat(width),
            "metric": pd.Categorical.from_codes(tiled, pd.Index(metrics)),
            "unit": bases,
            "value": values.ravel() * factors,
            "text": pd.Series(texts.ravel(), dtype=object),
        }
    )


def _in_base_units(units: Sequence[str], codes: Any) -> tuple[Any, pd.Categorical[Any]]:
    """Return the factor of each value and its base unit; `codes` says which of the units each value has."""
    pairs = [to_base(str(unit)) for unit in units] or [(1.0, "")]
    bases = list(dict.fromkeys(base for _, base in pairs))
    place = np.array([bases.index(base) for _, base in pairs])
    return np.array([factor for factor, _ in pairs])[codes], pd.Categorical.from_codes(place[codes], pd.Index(bases))


def _raw_has_decimal_comma(rows: pd.DataFrame, metrics: Sequence[str], units: dict[str, str]) -> bool:
    whole = [name for name in metrics if name.endswith(".sum") and units[name] in _COUNTED]
    return has_decimal_comma(
        (text for name in metrics for text in rows[name].cat.categories),
        (text for name in whole for text in rows[name].cat.categories),
    )


def launches(table: pd.DataFrame, metrics: Sequence[str] | None = None) -> pd.DataFrame:
    """Make a table with a row for each launch: kernel_id, process, name, device, and a column for each of `metrics`
    that was measured.

    Of a metric that several sections print, the first that is a number.
    """
    wanted = table if metrics is None else table[table["metric"].isin(list(metrics))]
    rows = table.drop_duplicates("kernel_id").set_index("kernel_id")[["process", "name", "device"]]
    wide = (
        wanted.dropna(subset=["value"])
        .drop_duplicates(["kernel_id", "metric"])
        .pivot(index="kernel_id", columns="metric", values="value")
    )
    wide.columns = [str(name) for name in wide.columns]
    if metrics is not None:
        wide = wide.reindex(columns=list(metrics))
    found = rows.join(wide).reset_index()
    meanings = {column: f"ncu's metric {column}, in base units" for column in wide.columns}
    return define(found, definitions(table) | meanings)
