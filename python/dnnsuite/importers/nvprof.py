# SPDX-License-Identifier: MIT
"""CSV of nvprof and of its visual profiler: traces of launches, summaries of kernels, metrics of either.

Tables, recognised by their header:

* nvvp's "GPU Details", full (`Name`, `Duration(ns)`) or summary (`Name`, `Avg. Duration(ns)`, `Invocations`);
* `nvprof --csv --print-gpu-trace`, with or without `--metrics`, and `nvprof --csv` (`Time(%)`, `Calls`, `Avg`), which
  write a row of units below the header;
* `nvprof --csv --metrics` (`Invocations`, `Metric Name`, `Min`, `Max`, `Avg`);
* with unified memory a page of what migrated (`Count`, `Avg Size`, `Total Size`, `Total Time`); with
  `--print-api-trace` one of the host's calls (`Start`, `Duration`, `Name`).

Summaries, traces, metrics and unified memory are read as nvprof prints them for people, too, without `--csv`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._lazy import numpy as np
from .._lazy import pandas as pd
from ..profiler.instrument import define
from ._nvprof_text import as_csv, is_text_header
from ._text import BadFile, fields_of, numbers, read_lines, read_rows, to_base

_NAMES = ("Name", "Kernel")
_DURATIONS = ("Duration", "Avg. Duration", "Avg")
_CALLS = ("Invocations", "Calls", "Num Calls")
_DEVICES = ("Device",)
# What the columns are that are neither of these nor metrics.
_OTHERS = {
    "Type", "Time(%)", "Time", "Min", "Max", "Start", "Start Time", "Context", "Stream", "Correlation_ID",
    "Correlation ID", "Grid X", "Grid Y", "Grid Z", "Block X", "Block Y", "Block Z", "Grid Size", "Block Size",
    "Registers Per Thread", "Regs", "Static SMem", "Dynamic SMem", "SSMem", "DSMem", "Static Shared Memory",
    "Dynamic Shared Memory", "Size", "Throughput", "SrcMemType", "DstMemType", "Src Mem Type", "Dst Mem Type",
    "Metric Name", "Metric Description", "Event Name", "Session", "Process", "Thread", "Unified Memory",
    "Virtual Address", "Src Dev", "Dst Dev", "Local Memory Per Thread", "Shared Memory Configuration",
    # of `nsys stats`
    "Med", "StdDev", "CorrId", "CorrID", "GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ", "Reg/Trd", "StcSMem",
    "DymSMem", "Bytes", "SrcMemKd", "DstMemKd", "Ctx", "GreenCtx", "GridXYZ", "BlockXYZ", "Result", "Pid", "Tid",
    "T-Pri", "Thread Name",
}  # fmt: skip
_LEVEL = re.compile(r"(?:Idle|Low|Mid|High|Max) \((\d+)\)$", re.IGNORECASE)
# In traces a kernel bears the number of its launch, and a call the kernel that it launched.
_LAUNCH = re.compile(r" \(.*\[\d+\]\)$| \[\d+\]$")
_UNITS_OF_TIME = ("s", "ms", "us", "ns")
_KERNELS = {
    "kernel_id": "number of the row among these in the file, from 0",
    "name": "the kernel, or the copy, as the tool wrote it",
    "device": "the GPU as the tool names it; empty where it does not",
    "calls": "launches that the row is about: 1 in a trace",
    "duration_ns": "of one launch, their mean in a summary; NaN where the file has none",
}
_METRICS = {
    "kernel_id": "row of table launches",
    "metric": "name of the metric as the tool wrote it",
    "unit": "base unit; `level` is 0 (idle) to 10 (max)",
    "value": "in that unit, the mean over launches in a summary; NaN where nothing was measured",
    "text": "what was printed, of a level or a word; missing elsewhere",
}
_API = {
    "name": "the CUDA function that the host called",
    "calls": "how often: 1 in a trace",
    "duration_ns": "of one call, their mean in a summary",
}
_UNIFIED = {
    "name": "what happened to pages: copied, or faults",
    "device": "the GPU as the tool names it",
    "count": "how often",
    "bytes": "that were moved, all together; NaN for what moves none",
    "duration_ns": "all together; NaN where the file has none",
}
_SIZES = {"Count", "Avg Size", "Total Size"}


def is_header(line: str) -> bool:
    """Return True if a line is the header of one of these tables."""
    if line.startswith("=="):
        return False
    if "," not in line:
        return is_text_header(line)
    plain = {_plain(field)[0] for field in fields_of(line)}
    times = plain & {*_DURATIONS} and plain & {"Duration", "Avg. Duration", "Calls", "Num Calls"}
    metrics = {"Metric Name", "Invocations"} <= plain or {"Context", "Stream", "Kernel"} <= plain
    unified = plain >= _SIZES
    named = plain & {*_NAMES} or unified  # whose column of names has no title in nvprof's own CSV
    return bool(named and "ID" not in plain and (times or metrics or unified))


def without_launch(names: pd.Series) -> pd.Series:
    """Names of kernels and of calls in a trace, without the launch: `relu(float*) [112]` is `relu(float*)`."""
    return names.astype(str).str.replace(_LAUNCH, "", regex=True)


def _plain(field: str) -> tuple[str, str]:
    """Return (`Duration`, `ns`) for `Duration(ns)` or `Duration (ns)`; what is in parentheses must be a unit."""
    match = re.fullmatch(r"(.+?) ?\((ns|us|ms|s|bytes|[KMG]?B/s|[KMG]?B)\)", field.strip())
    return (match[1], match[2]) if match else (field.strip(), "")


def read(path: str | Path) -> dict[str, pd.DataFrame]:
    """Read a CSV file of nvprof or nvvp.

    Returns:
        `launches`: kernel_id, name, device, calls, duration_ns, a row for each launch or each kernel of a summary;
        `metrics`: kernel_id, metric, unit, value, text. `Low (1)` is 1, `Max (10)` is 10, `Idle (0)` is 0;
        `api`: name, calls, duration_ns, the host's calls; `unified`: name, device, count, bytes, duration_ns.

    Raises:
        BadFile: no header that is known, no row, or a damaged row.
    """
    path = Path(path)
    return of_lines(path, as_csv(read_lines(path)))


def of_lines(path: Path, lines: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Read the lines of such a file, as :func:`read` does; `path` is for messages."""
    heads = [number for number, line in enumerate(lines) if is_header(line)]
    if not heads:
        raise BadFile(path, "no header of nvprof or nvvp: `Name` or `Kernel`, and durations, calls or metrics")
    pages: list[dict[str, pd.DataFrame]] = []
    first = 0
    for begin, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        page = _Page(path, lines, begin, end)
        if page.at:
            tables = page.tables(first)
            first += len(tables.get("launches", ()))
            pages.append(tables)
    if not pages:
        raise BadFile(path, "a header and no row below it: nothing was profiled, or the file is cut", heads[0] + 1)
    meanings = {"launches": _KERNELS, "metrics": _METRICS, "api": _API, "unified": _UNIFIED}
    joined = {}
    for name, columns in meanings.items():
        parts = [page[name] for page in pages if name in page and len(page[name])]
        table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*columns])
        joined[name] = define(table, columns)
    return joined


class _Page:
    """One header and the rows below it; nvprof writes one page for each process and each kind of result."""

    def __init__(self, path: Path, lines: Sequence[str], begin: int, end: int) -> None:
        self.path, self.header = path, begin
        fields = [_plain(field) for field in fields_of(lines[begin])]
        self.columns = [name for name, _ in fields]
        if {*self.columns} >= _SIZES and self.columns[-1] == "":  # nvprof gives this column no title
            self.columns[-1], fields[-1] = "Name", ("Name", "")
        repeated = [name for number, name in enumerate(self.columns) if name in self.columns[:number]]
        if repeated:
            raise BadFile(path, f"column {repeated[0]!r} occurs twice", begin + 1)
        self.units = dict(fields)
        at = [number for number in range(begin + 1, end) if "," in lines[number] and not lines[number].startswith("==")]
        if at and (units := self._row_of_units(lines[at[0]])):
            self.units |= units
            at = at[1:]
        self.at = [number + 1 for number in at]
        self.lines = [self._with_name_quoted(lines[number]) for number in at]

    def _with_name_quoted(self, line: str) -> str:
        """Old versions quote nothing, and a kernel's name, which comes last, has commas."""
        if self.columns[-1] not in _NAMES or '"' in line or line.count(",") < len(self.columns):
            return line
        *fields, name = line.split(",", len(self.columns) - 1)
        return ",".join([*fields, f'"{name}"'])

    def _row_of_units(self, line: str) -> dict[str, str]:
        fields = [field.strip() for field in fields_of(line)]
        given = dict(zip(self.columns, fields, strict=False))
        if len(fields) != len(self.columns) or any(given.get(name) for name in (*_NAMES, *_CALLS)):
            return {}
        return {name: unit for name, unit in given.items() if unit}

    def _of(self, names: Sequence[str]) -> str | None:
        return next((name for name in names if name in self.columns), None)

    def tables(self, first: int) -> dict[str, pd.DataFrame]:
        """Tables `unified`, or `launches`, `metrics` and `api`, kernels numbered from `first`."""
        rows = read_rows(self.path, self.lines, self.at, self.columns)
        if {*self.columns} >= _SIZES:
            table = self._unified(rows)
            faults = table["name"].astype(str).str.contains("page fault", case=False)
            table.loc[faults, "bytes"] = float("nan")  # what stands there is their number
            return {"unified": table}
        migrated = rows[self._of(_NAMES)].astype(str).str.match(r"\[Unified Memory ").to_numpy(bool)
        found = {"unified": self._pages(rows[migrated])} if migrated.any() else {}  # of a trace: no kernels, no calls
        rows = rows[~migrated]
        calls = self._are_calls(rows).to_numpy(bool)
        found |= {"api": self._api(rows[calls])} if calls.any() else {}
        return found | self._launches(rows[~calls], first)

    def _pages(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Pages of unified memory in a trace, a row for each time that some moved or a fault was served."""
        sizes = "Unified Memory" if "Unified Memory" in rows else "Size" if "Size" in rows else None
        moved = self._values(rows[sizes], self.units.get(sizes, "")) if sizes else None
        return pd.DataFrame({
            "name": rows["Name"].astype(object),
            "device": self._devices(rows),
            "count": np.ones(len(rows)),
            "bytes": moved["value"].where(moved["unit"] == "byte") if moved is not None else np.nan,
            "duration_ns": self._times_of(rows, self._of(_DURATIONS)),
        })  # fmt: skip

    def _devices(self, rows: pd.DataFrame) -> Any:
        device = self._of(_DEVICES)
        return rows[device].astype(object) if device else ""

    def _calls(self, rows: pd.DataFrame) -> Any:
        calls = self._of(_CALLS)
        return self._numbers(rows[calls]) if calls else np.ones(len(rows))

    def _times_of(self, rows: pd.DataFrame, time: str | None) -> Any:
        if time is None or time not in rows:
            return np.full(len(rows), np.nan)
        values = self._values(rows[time], self.units.get(time, ""))
        return values["value"].where(values["unit"] == "ns").to_numpy()

    def _are_calls(self, rows: pd.DataFrame) -> pd.Series:
        """True for rows of the host's calls: by their type, or in a trace by their lack of a device."""
        if "Type" in rows and rows["Type"].astype(str).str.contains("API calls").any():
            return rows["Type"].astype(str).str.contains("API calls")
        if "Num Calls" in rows:
            return rows["Name"].notna()
        if {"Start", "Duration", "Name"} <= {*self.columns}:
            if "Device" not in rows:
                return rows["Name"].notna()
            return (rows["Device"] == "") & (rows.get("Stream", rows["Device"]) == "")
        return rows[self._of(_NAMES)].isna()

    def _api(self, rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({
            "name": rows["Name"].astype(object),
            "calls": self._calls(rows),
            "duration_ns": self._durations(rows, self._of(_DURATIONS) or "Avg"),
        })  # fmt: skip

    def _unified(self, rows: pd.DataFrame) -> pd.DataFrame:
        times = self._times_of(rows, "Total Time")
        return pd.DataFrame({
            "name": rows["Name"].astype(object),
            "device": self._devices(rows),
            "count": self._counts(rows),
            "bytes": self._values(rows["Total Size"], self.units.get("Total Size", ""))["value"],
            "duration_ns": np.where(times > 0, times, np.nan),  # nvprof writes 0 where it took none
        })  # fmt: skip

    def _counts(self, rows: pd.DataFrame) -> Any:
        """Numbers of migrations; of page faults, which have none of their own, the total stands where sizes do."""
        faults = rows["Name"].astype(str).str.contains("page fault", case=False)
        total = rows["Total Size"].astype(str).str.extract(r"^\s*([\d.,]+)B?\s*$")[0]
        texts = rows["Count"].astype(str).where(~(faults & (rows["Count"].astype(str) == "")), total)
        return self._numbers(texts.fillna("")) if len(texts) else np.zeros(0)

    def _launches(self, rows: pd.DataFrame, first: int) -> dict[str, pd.DataFrame]:
        count = len(rows)
        long = "Metric Name" in self.columns
        duration = None if long else self._of(_DURATIONS)
        launches = pd.DataFrame(
            {
                "kernel_id": np.arange(first, first + count),
                "name": rows[self._of(_NAMES)].astype(object),
                "device": self._devices(rows),
                "calls": self._calls(rows),
                "duration_ns": self._durations(rows, duration) if duration else np.full(count, np.nan),
            }
        )
        metrics = self._long(rows) if long else self._wide(rows)
        metrics.insert(0, "kernel_id", metrics.pop("row") + first)
        return {"launches": launches, "metrics": metrics}

    def _numbers(self, texts: pd.Series) -> Any:
        """Numbers where nothing else may stand."""
        values, words = numbers(self.path, texts)
        if words.any():
            line = texts.index[words][0]
            raise BadFile(self.path, f"{texts[line]!r} where a number must stand", int(line))
        return self._counted(values, texts.index)

    def _counted(self, values: Any, lines: pd.Index) -> Any:
        """Counts and times as they are; none is negative."""
        if (values < 0).any():
            line = int(lines[values < 0][0])
            raise BadFile(self.path, "a count or a time is negative: the line is damaged", line)
        return values

    def _durations(self, rows: pd.DataFrame, column: str) -> Any:
        unit = self.units.get(column, "")
        carried = [_value(str(text)) for text in rows[column].cat.categories]
        if not unit and any(own in _UNITS_OF_TIME for _, own in carried):
            values = self._values(rows[column], "")["value"].to_numpy()  # each with its own: `12.052ms`
            return self._counted(values, rows.index)
        if unit not in _UNITS_OF_TIME:
            raise BadFile(
                self.path, f"{column!r} is in {unit or 'no unit'}, not in {', '.join(_UNITS_OF_TIME)}", self.header + 1
            )
        return self._numbers(rows[column]) * to_base(unit)[0]

    def _wide(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Metrics that have a column each."""
        known = {*_NAMES, *_DURATIONS, *_CALLS, *_DEVICES, *_OTHERS}
        parts = [
            self._values(rows[name], self.units.get(name, "")).assign(metric=name)
            for name in self.columns
            if name and name not in known
        ]
        columns = ["row", "metric", "unit", "value", "text"]
        return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)

    def _long(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Metrics that have a row each; the mean of launches is `Avg`."""
        if "Avg" not in self.columns:
            raise BadFile(self.path, "no column 'Avg' beside 'Metric Name'", self.header + 1)
        found = self._values(rows["Avg"], "").assign(metric=rows["Metric Name"].astype(object))
        return found[["row", "metric", "unit", "value", "text"]]

    def _values(self, texts: pd.Series, unit: str) -> pd.DataFrame:
        parts = [_value(str(text)) for text in texts.cat.categories]
        codes = texts.cat.codes.to_numpy()
        plain = pd.Series([number for number, _ in parts], dtype=object).iloc[codes].set_axis(texts.index)
        values, words = numbers(self.path, plain)
        scales = [_to_base(own or unit) if own != "level" else (1.0, "level") for _, own in parts]
        units = np.array([base for _, base in scales], dtype=object)[codes]
        said = words | (units == "level")
        return pd.DataFrame(
            {
                "row": np.arange(len(texts)),
                "unit": units,
                "value": values * np.array([factor for factor, _ in scales])[codes],
                "text": texts.astype(object).where(said, None),
            }
        )


def _to_base(unit: str) -> tuple[float, str]:
    """Convert as :func:`to_base`; nvprof's kB, MB and GB are powers of 1024: a page of 4096 bytes is its `4.0000KB`."""
    return to_base(re.sub(r"^([KMGT])B", r"\1iB", unit))


def _value(text: str) -> tuple[str, str]:
    """Return (number, unit) of a cell: `Low (1)` is a level, `12.5%` and `8.98GB/s` carry their units."""
    text = text.strip()
    level = _LEVEL.match(text)
    if level:
        return level[1], "level"
    carried = re.fullmatch(r"(-?[\d.,]+(?:e[+-]?\d+)?) ?(%|[KMGT]?B(?:/s)?|[num]?s)", text)
    return (carried[1], carried[2]) if carried else (text, "")
