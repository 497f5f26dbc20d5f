# SPDX-License-Identifier: MIT
"""Tables of an array and of its coverage, as a notebook shows the last value of a cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .coverage import Cover

__all__ = ["array_html", "coverage_html"]

_MOST_ROWS = 60


def coverage_html(covers: Sequence[Cover]) -> str:
    """Return a line that counts the ways in which modules run, and a row per module."""
    counts = Counter(cover.how for cover in covers)
    counted = ", ".join(f"{count} {how}" for how, count in counts.most_common())
    rows = [(c.name or "(the model)", c.layer, c.how, c.reason, milliseconds(c.cost_s)) for c in covers]
    left = f"<p>… and {len(rows) - _MOST_ROWS} more</p>" if len(rows) > _MOST_ROWS else ""
    columns = ("module", "class", "runs", "reason", "ms per forward")
    return f"<p>{escape(counted)}</p>{_table(columns, rows[:_MOST_ROWS])}{left}"


def array_html(array: Any, root: torch.nn.Module, covers: Sequence[Cover]) -> str:
    """Return a line about the array and its models, and the coverage."""
    parameters = list(array.parameters())
    each = sum(p.numel() for p in parameters) // array.B
    size_mb = sum(p.nbytes if p.stride(0) else p[0].nbytes for p in parameters) / 1e6  # shared ones once
    devices = ", ".join(sorted({str(p.device) for p in parameters})) or "no device"
    models = f"model{'s' * (array.B != 1)} {type(root).__name__}"
    line = f"array of {array.B} {models}: {each:,} parameters each, {size_mb:,.1f} MB in all on {devices}"
    return f"<p>{escape(line)}</p>{coverage_html(covers)}"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds > 0 else ""  # NaN before the first call


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
