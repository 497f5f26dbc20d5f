# SPDX-License-Identifier: MIT
"""Time by kernel, by copy, by call of the host and by range of the program."""

from __future__ import annotations

from ..._lazy import pandas as pd
from ...errors import InvalidArgument
from ..instrument import define

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
    "class": "what it is for, judged by its name",
    "name": "demangled name of the kernel",
    "span": "span in which it was launched; missing when in none",
    "device": "number of the GPU, as CUDA counts",
    "function": "the CUDA function that the host called",
    "operation": "direction of the copy (H host, D device, P peer), or memset",
    "range": "name of the range: NVTX's, or of record_function",
}
_BYTES = {"bytes": "copied or set, all together", "gb_per_s": "bytes / total_ns"}


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


def by_call(api: pd.DataFrame) -> pd.DataFrame:
    """Sum the time of the host's calls by function, a row each, most time first: of all threads together."""
    return define(_summed(api, ["function"]), _KEYS | _SUMS | _STATISTICS)


def by_copy(memops: pd.DataFrame) -> pd.DataFrame:
    """Sum the time and the bytes of copies by direction, a row each, most time first."""
    table = _summed(memops, ["operation"])
    moved = memops.groupby("operation", observed=True)["bytes"].sum()
    table.insert(3, "bytes", table["operation"].map(moved).astype("int64"))
    table.insert(4, "gb_per_s", table["bytes"] / table["total_ns"].where(table["total_ns"] > 0))
    return define(table, _KEYS | _SUMS | _BYTES | _STATISTICS)


def by_range(markers: pd.DataFrame) -> pd.DataFrame:
    """Sum the time of a program's ranges by name, a row each, most time first; ranges inside of others count each."""
    ranges = markers[markers["t1_ns"] > markers["t0_ns"]].rename(columns={"name": "range"})
    return define(_summed(ranges, ["range"]), _KEYS | _SUMS | _STATISTICS)


def _summed(kernels: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    durations = kernels["t1_ns"] - kernels["t0_ns"]
    rows = kernels[keys].assign(ns=durations).groupby(keys, observed=True, dropna=False, sort=False)["ns"]
    table = rows.agg(["count", "sum", "mean", "median", "min", "max"]).reset_index()
    table.columns = [*keys, "calls", "total_ns", *_STATISTICS]
    table.insert(len(keys) + 2, "share_pct", 100 * table["total_ns"] / max(int(durations.sum()), 1))
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
