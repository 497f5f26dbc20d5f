# SPDX-License-Identifier: MIT
"""Figures as text, with the same digits in every table, line, report and page. Files of data keep all digits."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

WIDTH = 80
"""Characters of a line for a terminal whose width is not known."""
_MOST = 6  # values that are listed one by one
_UNKNOWN = "-"
_DURATIONS = ((3600.0, 7200.0, "h"), (60.0, 120.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (1e-6, 0.0, "µs"))


def wrapped(text: str, first: str = "", rest: str | None = None, width: int = WIDTH) -> list[str]:
    """Return lines of a text: `first` begins the first one, `rest` (or blanks) the others; no word is broken."""
    rest = " " * len(first) if rest is None else rest
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                         break_on_hyphens=False) or [first.rstrip()]  # fmt: skip


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Return lines of a table whose columns are as wide as their widest cell; those in `left` begin at the left.

    >>> aligned([("job", "rate"), ("a", "1")])
    ['job  rate', 'a       1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.ljust if i in left else str.rjust for i in range(len(widths))]
    return ["  ".join(map(lambda side, cell, w: side(cell, w), sides, row, widths)).rstrip() for row in rows]


def table_html(columns: Sequence[str], rows: Iterable[Sequence[str]], line: str) -> str:
    """Return a line and a table, as HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<p>{escape(line)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def markdown_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of a table in Markdown; its rule is one of the rows."""
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def number(value: float) -> str:
    """Four significant digits, and all digits before the point.

    >>> number(1234.5), number(12.345), number(0.0123456), number(float("nan"))
    ('1,234', '12.35', '0.01235', '-')
    """
    if not math.isfinite(value):
        return _UNKNOWN
    digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(digits, 6)}f}"


def interval(low: float | None, high: float | None, text: Callable[[float], str] = number) -> str:
    """Return an interval after a space; empty where an end is not known.

    >>> "2.66" + interval(1.884, 3.761, "{:.2f}".format), interval(None, None)
    ('2.66 [1.88, 3.76]', '')
    """
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f" [{text(low)}, {text(high)}]"


def rate(value: float, unit: str, low: float | None = None, high: float | None = None) -> str:
    """Return a rate with its unit, and its interval where one is known.

    >>> rate(123.456, "samples/s"), rate(123.456, "samples/s", 120.0, 127.0)
    ('123.5 samples/s', '123.5 samples/s [120.0, 127.0]')
    """
    return f"{number(value)} {unit}{interval(low, high)}" if math.isfinite(value) else _UNKNOWN


def ratio(value: float, low: float | None = None, high: float | None = None) -> str:
    """Return a ratio with two decimals, and its interval where one is known.

    >>> ratio(2.664, 1.884, 3.761)
    '2.66 [1.88, 3.76]'
    """
    return f"{value:.2f}{interval(low, high, '{:.2f}'.format)}" if math.isfinite(value) else _UNKNOWN


def percent(value: float, signed: bool = False) -> str:
    """Return a percentage with one decimal.

    >>> percent(12.345), percent(12.345, signed=True)
    ('12.3 %', '+12.3 %')
    """
    return f"{value:{'+' if signed else ''}.1f} %" if math.isfinite(value) else _UNKNOWN


def duration(seconds: float) -> str:
    """Return a time in its unit, three significant digits.

    >>> duration(75.0), duration(1.234), duration(0.0123), duration(4000.0), duration(8000.0)
    ('75.0 s', '1.23 s', '12.3 ms', '66.7 min', '2.22 h')
    """
    if not math.isfinite(seconds):
        return _UNKNOWN
    scale, _, unit = next(each for each in _DURATIONS if abs(seconds) >= each[1])
    value = seconds / scale
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{min(digits, 3)}f} {unit}"


def size(count: float) -> str:
    """Return a number of bytes in MiB, or in GiB from one on.

    >>> size(3 * 2**20), size(5 * 2**30 + 2**29)
    ('3.0 MiB', '5.5 GiB')
    """
    return f"{count / 2**30:,.1f} GiB" if abs(count) >= 2**30 else f"{count / 2**20:.1f} MiB"


def metric(value: float) -> str:
    """Return a loss, an accuracy or another figure of a model, with five significant digits.

    >>> metric(0.123456), metric(97.5)
    ('0.12346', '97.500')
    """
    return f"{value:#.5g}"


def settings_lines(settings: Mapping[str, Any]) -> list[str]:
    """Write a line for each setting that has a value: lists with commas, a mapping as NAME=VALUE."""
    lines = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            for key, inner in value.items():
                inside = [f"{k}={v}" for k, v in inner.items()] if isinstance(inner, Mapping) else [inner]
                lines.append(f"{f'{name} {key}':<18} {', '.join(map(str, inside))}")
        elif value not in (None, "", []):
            lines.append(f"{name:<18} {', '.join(map(str, value)) if isinstance(value, list) else value}")
    return lines


def setting(value: Any) -> str:
    """Return a value of a hyper-parameter, four significant digits of a fraction.

    >>> setting(0.00123456), setting("adam"), setting(3)
    ('0.001235', 'adam', '3')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def shown(values: Sequence[Any]) -> str:
    """B values, one per model: one if they are equal, the first and last of many.

    >>> shown([0.1, 0.1, 0.1])
    '0.1'
    >>> shown([0.1 * i for i in range(12)])
    '[0, 0.1, 0.2, ..., 1.1]'
    """
    texts = [f"{value:.6g}" if isinstance(value, float) else repr(value) for value in values]
    if len(set(texts)) == 1:
        return texts[0]
    if len(texts) > _MOST:
        texts = [*texts[:3], "...", texts[-1]]
    return f"[{', '.join(texts)}]"
