# SPDX-License-Identifier: MIT
"""nvprof's tables for reading (without `--csv`), line by line as the CSV that it would have written."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

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
    for text in lines:
        line = text
        head = next((each for each in _HEADS if each.match(line)), None)
        if head is not None:
            table, kind = head, "GPU activities"
            made.append(_row(_HEADS[head]))
            continue
        if _TRACE.match(line):
            table, names = _TRACE, [name.rstrip("*") for name in _BETWEEN.split(line.strip())]
            columns = len(names)
            made.append(_row(names))
            continue
        if table is _TRACE and _TRACE_ROW.match(line):
            cells = _BETWEEN.split(line.strip(), columns - 1)
            made.append(_row(["" if cell == "-" else cell for cell in cells]))
            continue
        if found := _DEVICE.match(line):
            device, line = found[1], ""
        elif table is _METRICS and (found := _KERNEL.match(line)):
            kernel, line = found[1], ""
        elif table is _SUMMARY and (found := _SUMMARY_ROW.match(line)):
            kind = found[1] or kind
            made.append(_row([kind, *found.groups()[1:]]))
            continue
        elif table is _UNIFIED and (found := _UNIFIED_ROW.match(line)):
            made.append(_row([device, *found.groups()]))
            continue
        elif table is _METRICS and (found := _METRIC_ROW.match(line)):
            made.append(_row([device, kernel, *found.groups()]))
            continue
        made.append(line)
    return made


def _row(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="", quoting=csv.QUOTE_ALL).writerow(fields)
    return text.getvalue()
