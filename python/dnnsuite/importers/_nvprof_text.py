# SPDX-License-Identifier: MIT
"""nvprof's tables for reading (without `--csv`), line by line as the CSV that it would have written."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

from ._text import csv_line

_SUMMARY = re.compile(r"\s*(?:Type\s+)?Time\(%\)\s+Time\s+Calls\s+Avg\s+Min\s+Max\s+Name\s*$")
_UNIFIED = re.compile(r"\s*Count\s+Avg Size\s+Min Size\s+Max Size\s+Total Size\s+Total Time\s+Name\s*$")
_METRICS = re.compile(r"\s*Invocations\s+Metric Name\s+Metric Description\s+Min\s+Max\s+Avg\s*$")
_TRACE = re.compile(r"\s*Start\s{2,}Duration\s{2,}(?:\S.*\s{2,})?Name\s*$")
_TRACE_ROW = re.compile(r"\s*[\d.]+[num]?s\s{2,}(?:[\d.]+[num]?s|-)\s{2,}\S")
_BETWEEN = re.compile(r"\s{2,}")  # columns of a trace, whose cells have single blanks: `(4097 1 1)`
_KERNEL = re.compile(r"\s+Kernel: (.+)$")
_DEVICE = re.compile(r'\s*Device "(.+)"\s*$')
_SUMMARY_ROW = re.compile(
    r"\s*(?:(GPU activities|API calls|OpenACC[^:]*):)?\s*([\d.]+%)\s+(\S+)\s+(\d+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(.+?)\s*$"
)
_UNIFIED_ROW = re.compile(r"\s*(\d+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(.+?)\s*$")
_METRIC_ROW = re.compile(r"\s*(\d+)\s{2,}(\S+)\s{2,}(\S.*?)\s{2,}(\S.*?)\s{2,}(\S.*?)\s{2,}(\S.*?)\s*$")
_ROWS = {_SUMMARY: _SUMMARY_ROW, _UNIFIED: _UNIFIED_ROW, _METRICS: _METRIC_ROW}
_HEADS = {
    _SUMMARY: ["Type", "Time(%)", "Time", "Calls", "Avg", "Min", "Max", "Name"],
    _UNIFIED: ["Device", "Count", "Avg Size", "Min Size", "Max Size", "Total Size", "Total Time", "Name"],
    _METRICS: ["Device", "Kernel", "Invocations", "Metric Name", "Metric Description", "Min", "Max", "Avg"],
}


def is_text_header(line: str) -> bool:
    """Return True if a line is the header of a table for reading that :func:`as_csv` knows."""
    return any(head.match(line) for head in (*_HEADS, _TRACE))


def as_csv(lines: Sequence[str]) -> list[str]:
    """Rewrite the tables among the lines as CSV; the number of lines stays."""
    made = []
    table: re.Pattern[str] | None = None
    kind = device = kernel = ""
    columns = 0
    for line in lines:
        fields: Sequence[str] | None = None
        if head := next((each for each in _HEADS if each.match(line)), None):
            table, kind, fields = head, "GPU activities", _HEADS[head]
        elif _TRACE.match(line):
            table, fields = _TRACE, [name.rstrip("*") for name in _BETWEEN.split(line.strip())]
            columns = len(fields)
        elif table is _TRACE and _TRACE_ROW.match(line):
            fields = ["" if cell == "-" else cell for cell in _BETWEEN.split(line.strip(), columns - 1)]
        elif found := _DEVICE.match(line):
            device, fields = found[1], ()
        elif table is _METRICS and (found := _KERNEL.match(line)):
            kernel, fields = found[1], ()
        elif table in _ROWS and (found := _ROWS[table].match(line)):
            first, *rest = found.groups()
            kind = first or kind if table is _SUMMARY else kind
            before = {_SUMMARY: [kind], _UNIFIED: [device, first], _METRICS: [device, kernel, first]}[table]
            fields = [*before, *rest]
        made.append(line if fields is None else csv_line(fields, csv.QUOTE_ALL) if fields else "")
    return made
