# SPDX-License-Identifier: MIT
"""Interface between an instrument and the profiler that drives it, and definitions of its tables' columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from .._lazy import pandas as pd
from ..errors import InvalidArgument


@runtime_checkable
class Instrument(Protocol):
    """Source of measurements: opened once, started and stopped once for each window, closed once.

    Times are int64 nanoseconds of CLOCK_MONOTONIC (:func:`dnnsuite.timing.now_ns`) in columns `t0_ns`, `t1_ns`.
    """

    name: str
    """Name by which users request it: "activity", "counters", "nvml", "cpu", "spans", "memory", ..."""

    def open(self) -> None:
        """Acquire the resources of the instrument.

        Raises:
            Unavailable: something is missing. The message names it, the places searched and a remedy; nothing is held
                afterwards.
        """

    def start(self) -> None:
        """Open a window. May be called again after :meth:`stop`."""

    def step(self, index: int) -> None:
        """End step `index` of the window, counted from 0."""

    def stop(self) -> None:
        """Close the window; its results are complete on return."""

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the results of all windows by the name of their table; see :func:`define`."""

    def notes(self) -> list[str]:
        """List remarks for the reader: dropped records, multiplexing, refusals."""

    def close(self) -> None:
        """Release everything, also after a failure. Idempotent."""


def define(table: pd.DataFrame, meanings: Mapping[str, str]) -> pd.DataFrame:
    """Put a definition of each column of `table` into `table.attrs["definitions"]`; return `table`.

    Raises:
        InvalidArgument: a column has no line.
    """
    missing = [column for column in table.columns if column not in meanings]
    if missing:
        raise InvalidArgument(f"no definition of {missing}; the columns defined are {sorted(meanings)}")
    table.attrs["definitions"] = {column: meanings[column] for column in table.columns}
    return table


def definitions(table: pd.DataFrame) -> dict[str, str]:
    """Return the definition of each column of `table`, as :func:`define` put it there."""
    found: dict[str, str] = table.attrs.get("definitions", {})
    return dict(found)
