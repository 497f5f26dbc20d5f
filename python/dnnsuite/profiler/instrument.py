# SPDX-License-Identifier: MIT
"""What every instrument promises to the profiler that drives it, and how its tables carry their definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..errors import InvalidArgument

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Instrument", "define", "definitions"]


@runtime_checkable
class Instrument(Protocol):
    """A source of measurements: opened once, started and stopped once for each window, closed once.

    Times are int64 nanoseconds of CLOCK_MONOTONIC (:func:`dnnsuite.timing.now_ns`) in columns `t0_ns`, `t1_ns`.
    """

    name: str
    """How it is asked for: "activity", "counters", "nvml", "cpu", "spans", "memory", ..."""

    def open(self) -> None:
        """Acquire what is needed.

        Raises:
            Unavailable: what is missing, where it was looked for and what would help; nothing is held after it.
        """

    def start(self) -> None:
        """A window opens. May be called again after :meth:`stop`."""

    def step(self, index: int) -> None:
        """Step `index` of the window, counted from 0, has ended."""

    def stop(self) -> None:
        """The window closes; its results are complete on return."""

    def tables(self) -> dict[str, pd.DataFrame]:
        """Results of all windows by the name of their table; see :func:`define`."""

    def notes(self) -> list[str]:
        """What a reader must know: dropped records, multiplexing, what was refused."""

    def close(self) -> None:
        """Release everything, also after a failure; again does nothing."""


def define(table: pd.DataFrame, meanings: Mapping[str, str]) -> pd.DataFrame:
    """`table` with one line for each of its columns that says how it is defined, in `table.attrs["definitions"]`.

    Raises:
        InvalidArgument: a column has no line.
    """
    missing = [column for column in table.columns if column not in meanings]
    if missing:
        raise InvalidArgument(f"no definition of {missing}; the columns defined are {sorted(meanings)}")
    table.attrs["definitions"] = {column: meanings[column] for column in table.columns}
    return table


def definitions(table: pd.DataFrame) -> dict[str, str]:
    """How each column of `table` is defined: the lines that :func:`define` put there."""
    found: dict[str, str] = table.attrs.get("definitions", {})
    return dict(found)
