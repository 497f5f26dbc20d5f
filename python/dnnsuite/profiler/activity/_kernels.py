# SPDX-License-Identifier: MIT
"""GPU time by kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InvalidArgument
from ..instrument import define

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["by_class", "by_kernel", "by_span"]

_SUMS = {
    "calls": "how often it ran",
    "total_ns": "sum of durations; kernels that ran side by side count each",
    "share_pct": "100 total_ns / the sum over all kernels of the table, not over the time of the window",
}
_STATISTICS = {
    "mean_ns": "total_ns / calls",
    "median_ns": "median duration",
    "least_ns": "shortest",
    "most_ns": "longest",
}
_KEYS = {
    "class": "what it is for, told by its name",
    "name": "demangled name of the kernel",
    "span": "span in which it was launched; missing when in none",
    "device": "number of the GPU, as CUDA counts",
}


def by_kernel(kernels: pd.DataFrame, top: int | None = None) -> pd.DataFrame:
    """Sum the time by kernel name, a row each, most time first; at most `top` rows.

    Args:
        kernels: table of :class:`ActivityInstrument`.
    """
    table = _summed(kernels, ["class", "name"]).head(top if top is not None else len(kernels))
    return define(table.reset_index(drop=True), _KEYS | _SUMS | _STATISTICS)


def by_class(kernels: pd.DataFrame) -> pd.DataFrame:
    """Sum the time by class of kernel, a row each, most time first."""
    return define(_summed(kernels, ["class"])[["class", *_SUMS]], _KEYS | _SUMS)


def by_span(kernels: pd.DataFrame) -> pd.DataFrame:
    """Sum the time by span and class of the kernels launched in it, a row each, most time first.

    Args:
        kernels: result of :func:`attribute`.

    Raises:
        InvalidArgument: `kernels` has no column `span`.
    """
    if "span" not in kernels:
        raise InvalidArgument("kernels has no column 'span': attribute(kernels, api, spans) makes it")
    return define(_summed(kernels, ["span", "class"])[["span", "class", *_SUMS]], _KEYS | _SUMS)


def _summed(kernels: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    durations = kernels["t1_ns"] - kernels["t0_ns"]
    rows = kernels[keys].assign(ns=durations).groupby(keys, observed=True, dropna=False, sort=False)["ns"]
    table = rows.agg(["count", "sum", "mean", "median", "min", "max"]).reset_index()
    table.columns = [*keys, "calls", "total_ns", *_STATISTICS]
    table.insert(len(keys) + 2, "share_pct", 100 * table["total_ns"] / max(int(durations.sum()), 1))
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
