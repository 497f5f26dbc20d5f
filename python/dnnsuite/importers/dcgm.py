# SPDX-License-Identifier: MIT
"""Reader of DCGM: `dcgmi dmon`, dcgm-exporter's text and tables of it in CSV, as the table `samples`.

The header decides what a column is, not its position; every entity keeps its own rows. Quantities that the instrument
`nvml` has as well bear its names and units, so that both can be drawn together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

from .._lazy import pandas as pd
from ..errors import InvalidArgument
from ..profiler.dcgm import BY_NAME, ENTITY, FIELDS, HEADER, NOTHING, column_of, device_of
from ..profiler.sampler import samples_table
from ._text import BadFile, fields_of, read_lines

Row = tuple[int, str, str, float, str]  # t_ns, device, name, value, unit


_DEFINITIONS = {field.name: f"DCGM's field {field.number}, DCGM_FI_{field.long}" for field in FIELDS} | {
    "gpu_util": "DCGM's field 203: time in which some kernel was running, on however few SMs: not how much of the "
    "GPU was used"
}
_SECOND = re.compile(r"\s*#?\s*Id\b", re.IGNORECASE)  # the header's second line, with units in old versions
# A time that a logger put before a line: [2024-05-01 12:00:00.5], 2024-05-01T12:00:00Z, [12:00:00], 1714564800.25.
_STAMP = re.compile(
    r"\s*\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d+)?|\d{9,}(?:\.\d+)?)\]?"
    r"[:,]?\s+(?=#|[A-Za-z])"
)
_TOO_WIDE = re.compile(r"\*+$")  # what dmon prints of a value that is wider than its column
_BLANK = (9223372036854775792, 2147483632)  # from these on, of 64 and 32 bits, DCGM's words for "no value"
_EXPOSED = re.compile(r"(DCGM_FI_\w+)\{(.*)\}\s+(\S+)(?:\s+(-?\d+))?\s*$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Labels of those who share a GPU: one scrape has a line for each of them.
_SHARERS = (
    "namespace", "pod", "container", "exported_namespace", "exported_pod", "exported_container", "vgpu",
)  # fmt: skip
_TIMES = {"timestamp_ms": 10**6, "timestamp_ns": 1, "t_ns": 1, "timestamp": 10**9, "time": 10**9}
_LATEST_S = 10**10  # in the year 2286: a larger time since 1970 is in ms or ns
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_HOST = {  # columns of HFTA's file that are of the machine
    "cpu_percent": ("busy", 1.0, "%"),
    "host_mem_total": ("memory_total", 1.0, "bytes"),
    "host_mem_available": ("memory_available", 1.0, "bytes"),
}
_DEVICES = ("gpu", "entity", "device", "gpuid", "gpu_id")


def is_dcgm(line: str) -> bool:
    """Return True if a line is a header, or a sample, of one of DCGM's tools."""
    exposed = _EXPOSED.match(line)
    return bool(HEADER.match(_stamped(line)[1]) or exposed or ("DCGM_FI_" in line.upper() and _is_csv(line)))


def _is_csv(line: str) -> bool:
    names = {field.strip().lower() for field in fields_of(line)}
    return bool(names & {*_DEVICES}) or _is_hfta(names)


def _is_hfta(names: Collection[str]) -> bool:
    """True for the header of HFTA's `dcgm_metrics.csv`, which is of one GPU and does not name it."""
    return {"timestamp", *_HOST} <= {*names} and any(name.startswith("dcgm_fi_") for name in names)


def read(path: str | Path, interval_s: float = 1.0) -> pd.DataFrame:
    """Read a file of DCGM as `samples`: t_ns, source ("dcgm"), device, name, value, unit.

    Args:
        path: output of `dcgmi dmon`, of dcgm-exporter's `/metrics`, or a CSV file with a time, a GPU and a column per
            field (or `metric` and `value`).
        interval_s: seconds between samples, for files that have no times of their own; dmon's `-d`.

    Returns:
        N/A is NaN. Fields that are not known keep their names, values and no unit.

    Raises:
        BadFile: no header, no sample, a row with more or fewer values than the header, or a value that is no number.
        InvalidArgument: an interval that is not positive.
    """
    path = Path(path)
    if not 0 < interval_s < 1e9:
        raise InvalidArgument(f"interval_s={interval_s}: must be positive")
    lines = read_lines(path)
    clock = _Clock(round(interval_s * 1e9))
    if any(HEADER.match(_stamped(line)[1]) for line in lines):
        rows = [*_monitor(path, lines, clock)]
    elif any(_EXPOSED.match(line.strip()) for line in lines):
        rows = [*_exposition(path, lines, clock)]
    else:
        rows = [*_csv(path, lines, clock)]
    if not rows:
        raise BadFile(path, "a header and no sample below it: the file is cut, or no GPU was watched")
    known = {row[2] for row in rows}
    return samples_table(
        "dcgm", rows, {name: _DEFINITIONS.get(name, "a field of DCGM, as it was written") for name in sorted(known)}
    )


def _stamped(line: str) -> tuple[str, str]:
    """Return the time before a line, "" where there is none, and the line."""
    found = _STAMP.match(line)
    return (found[1], line[found.end() :]) if found else ("", line)


class _Clock:
    """The time of a sample in a file that has none: one interval on whenever what was seen is seen again."""

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns, self._t_ns = interval_ns, 0
        self._seen: set[object] = set()

    def at(self, key: object) -> int:
        if key in self._seen:
            self._seen.clear()
            self._t_ns += self._interval_ns
        self._seen.add(key)
        return self._t_ns


def _monitor(path: Path, lines: Sequence[str], clock: _Clock) -> Iterator[Row]:
    columns: list[tuple[str, float, str]] = []
    after_header = False
    for number, written in enumerate(lines, 1):
        stamp, line = _stamped(written)
        if header := HEADER.match(line):
            columns = [column_of(name) for name in header[1].split()]
            if not columns:
                raise BadFile(path, "a header without fields", number)
            after_header = True
            continue
        if after_header and _SECOND.match(line):
            continue
        entity = ENTITY.match(line) if columns else None
        if entity is None or not _is_value(entity[3]):
            if columns and re.match(r"\s*GPU\b", line):
                raise BadFile(path, "a GPU without values: the line is damaged", number)
            continue
        after_header = False
        values = entity[3].split()
        if len(values) != len(columns):
            raise BadFile(
                path,
                f"{len(values)} values where the header has {len(columns)} fields: the line is "
                "damaged; without it the rest can be imported",
                number,
            )
        device = device_of(entity[1], entity[2])
        t_ns = _time(path, number, _dated(stamp), 10**9) if stamp else clock.at(device)
        for text, (name, factor, unit) in zip(values, columns, strict=True):
            yield t_ns, device, name, _number(path, number, text, bool(unit)) * factor, unit


def _as_dcgm(name: str) -> str:
    """Return a field's name in capitals, as DCGM has it: relabelling writes `dcgm_fi_dev_gpu_util`."""
    return name.upper() if name.lower().startswith("dcgm_fi_") else name


def _is_value(rest: str) -> bool:
    """Return True if values follow an entity: dcgmi's messages begin with words, too."""
    first = rest.split()[:1]
    return bool(first) and (first[0] in NOTHING or first[0][0] in "-.0123456789*")


def _number(path: Path, line: int, text: str, is_known: bool) -> float:
    try:
        value = float("nan" if text in NOTHING or _TOO_WIDE.fullmatch(text) else text)
        if math.isinf(value) or "_" in text:
            raise ValueError(text)
        is_blank = value >= float(_BLANK[0]) or _BLANK[1] <= value < _BLANK[1] + 16
        return float("nan") if is_blank else value
    except ValueError:
        if not is_known:
            return float("nan")  # a field of text, a name or a version
        raise BadFile(path, f"{text!r} is not a number: the line is damaged", line) from None


def _dated(stamp: str) -> str:
    """Read a time; a time of day is one of 1970, whose differences are right."""
    text = stamp.replace(",", ".")
    return f"1970-01-01T{text}" if ":" in text and "-" not in text else text.replace(" ", "T")


def _exposition(path: Path, lines: Sequence[str], clock: _Clock) -> Iterator[Row]:
    """Prometheus' text format; scrapes that were appended to each other follow each other in time."""
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if not stripped.startswith("DCGM_FI_"):
            continue
        found = _EXPOSED.match(stripped)
        if not found:
            raise BadFile(path, "not `NAME{labels} value`: the line is damaged", number)
        labels = dict(_LABEL.findall(found[2]))
        if "gpu" not in labels:
            raise BadFile(path, 'no label gpu="...": the line is damaged', number)
        part = f"/{labels['GPU_I_ID']}" if "GPU_I_ID" in labels else ""
        device = f"gpu{labels['gpu']}{part}"
        name, factor, unit = column_of(found[1])
        t_ns = int(found[4]) * 10**6 if found[4] else clock.at((device, name, *map(labels.get, _SHARERS)))
        if abs(t_ns) >= 2**63:
            raise BadFile(path, f"{found[4]!r} is not a time in ms", number)
        yield t_ns, device, name, _number(path, number, found[3], True) * factor, unit


def _csv(path: Path, lines: Sequence[str], clock: _Clock) -> Iterator[Row]:
    head = next((number for number, line in enumerate(lines) if _is_csv(line)), None)
    if head is None:
        raise BadFile(path, "no header of dcgmi dmon (`#Entity`), no sample of dcgm-exporter, no CSV with a column gpu")
    names = [field.strip() for field in fields_of(lines[head])]
    lower = [name.lower() for name in names]
    device = next((lower.index(name) for name in _DEVICES if name in lower), None)
    time = next(((lower.index(name), scale) for name, scale in _TIMES.items() if name in lower), None)
    tall = (lower.index("metric"), lower.index("value")) if {"metric", "value"} <= {*lower} else None
    taken = {device, time[0] if time else device, *(tall or ())}
    host = [lower.index(name) for name in _HOST] if _is_hfta(lower) else []
    fields = (
        []
        if tall
        else [number for number, name in enumerate(names) if number not in taken and _as_dcgm(name) in BY_NAME]
    )
    if not (tall or fields):
        raise BadFile(path, f"none of the columns {', '.join(names)} is a field of DCGM", head + 1)
    for number, line in enumerate(lines[head + 1 :], head + 2):
        if not line.strip():
            continue
        values = [field.strip() for field in fields_of(line)]
        if len(values) != len(names):
            raise BadFile(path, f"{len(values)} fields where the header has {len(names)}: the line is damaged", number)
        who = "0" if device is None else values[device]
        who = f"gpu{who}" if who.isdigit() else who
        pairs = [(values[tall[0]], values[tall[1]])] if tall else [(names[at], values[at]) for at in fields]
        for written, text in pairs:
            name, factor, unit = column_of(_as_dcgm(written))
            t_ns = _time(path, number, values[time[0]], time[1]) if time else clock.at((who, name))
            yield t_ns, who, name, _number(path, number, text, bool(unit)) * factor, unit
        for at in host:
            name, factor, unit = _HOST[lower[at]]
            t_ns = _time(path, number, values[time[0]], time[1]) if time else clock.at(("machine", name))
            yield t_ns, "machine", name, _number(path, number, values[at], True) * factor, unit


def _time(path: Path, line: int, text: str, scale_ns: int) -> int:
    """ns since 1970 for a number, or a date and time of ISO 8601 (of UTC where it names no zone)."""
    try:
        number = Decimal(text)
        if scale_ns == 10**9 and abs(number) > _LATEST_S:  # of a column named as if it had seconds
            scale_ns = 10**6 if abs(number) < 1000 * _LATEST_S else 1
        t_ns = round(number * scale_ns) if abs(number) < 2**63 else 2**63
    except (ValueError, ArithmeticError):
        try:
            when = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise BadFile(path, f"{text!r} is not a time: the line is damaged", line) from None
        when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
        t_ns = (when - _EPOCH) // timedelta(microseconds=1) * 1000
    if abs(t_ns) >= 2**63:
        raise BadFile(path, f"{text!r} is not a time of this millennium: the line is damaged", line)
    return t_ns
