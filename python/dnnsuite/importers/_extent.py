# SPDX-License-Identifier: MIT
"""The stretch of time that a trace covers, kept with its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["with_windows"]


def with_windows(
    tables: dict[str, pd.DataFrame], windows: Sequence[tuple[int, int]] | None = None
) -> dict[str, pd.DataFrame]:
    """Return the tables with `attrs["windows"]`: `windows`, or from the first begin to the last end of all rows."""
    rows = [table for table in tables.values() if len(table)]
    found = [[int(begin), int(end)] for begin, end in windows or ()]
    if not found and rows:
        found = [[min(int(t["t0_ns"].min()) for t in rows), max(int(t["t1_ns"].max()) for t in rows)]]
    for table in tables.values():
        table.attrs["windows"] = found
    return tables
