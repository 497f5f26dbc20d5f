# SPDX-License-Identifier: MIT
"""The stretch of time that a trace covers, kept with its tables; what its times cannot tell is found here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .._lazy import pandas as pd

_GPU = ("kernels", "memops", "graphs")
_WORK = (*_GPU, "api", "overhead", "syncs")
_LEAST_NS = 1_000_000  # by which kernels begin before their launch where clocks disagree: the others drift by µs
_MOST_NS = 1_000_000_000


def timed(tables: dict[str, pd.DataFrame], absolute: bool = False) -> dict[str, pd.DataFrame]:
    """Leave out work whose times could not be taken, and keep its number as `attrs["untimed"]`.

    CUPTI writes 0 for the begin and the end of it; in a file that counts from 1970 (`absolute`) one 0 is enough.
    """
    for name in _WORK:
        table = tables.get(name)
        if table is None or table.empty:
            continue
        begins, ends = table["t0_ns"] == 0, table["t1_ns"] == 0
        missing = (begins | ends) if absolute else (begins & ends)
        if missing.any():
            tables[name] = table[~missing].reset_index(drop=True)
            tables[name].attrs = {**table.attrs, "untimed": int(missing.sum())}
    return tables


_FARTHEST_NS = 2**62


def clock_offset_ns(tables: Mapping[str, pd.DataFrame]) -> int:
    """Return how far the GPU's clock is from the host's; 0 where nothing shows that they disagree.

    They do where kernels begin before the calls that launched them, or after the last call by more than all of the
    GPU's work takes.
    """
    work = [tables[name][["t0_ns", "t1_ns", "correlation"]] for name in _GPU if name in tables and len(tables[name])]
    api = tables.get("api")
    if not work or api is None or api.empty:
        return 0
    begins, ends = (np.concatenate([each[side].to_numpy() for each in work]) for side in ("t0_ns", "t1_ns"))
    first, last = int(begins.min()), int(ends.max())
    longest = max(_MOST_NS, last - first)
    after, before = first - int(api["t1_ns"].max()), int(api["t0_ns"].min()) - last
    if max(longest, abs(after), abs(before)) >= _FARTHEST_NS:
        return 0  # times of no clock
    if after > longest:
        return after
    if before > _LEAST_NS:
        return -before
    launches = api.drop_duplicates("correlation").set_index("correlation")["t0_ns"]
    own = np.concatenate([each["correlation"].map(launches).to_numpy(float) for each in work])
    queued = (begins - own)[np.isfinite(own)]
    middle = int(np.median(queued)) if len(queued) else 0
    return middle if middle < -_LEAST_NS or middle > longest else 0


def with_windows(
    tables: dict[str, pd.DataFrame], windows: Sequence[tuple[int, int]] | None = None
) -> dict[str, pd.DataFrame]:
    """Return the tables with `attrs["windows"]`: `windows`, or from the first begin to the last end of all rows.

    Where the clocks of host and GPU disagree (`attrs["clock_offset_ns"]`), the window is that of the GPU's work.
    """
    offset = clock_offset_ns(tables)
    rows = [table for name, table in tables.items() if len(table) and (not offset or name in _GPU)]
    found = [[int(begin), int(end)] for begin, end in windows or ()]
    if rows and (not found or offset):
        found = [[min(int(t["t0_ns"].min()) for t in rows), max(int(t["t1_ns"].max()) for t in rows)]]
    for table in tables.values():
        table.attrs["windows"], table.attrs["clock_offset_ns"] = found, offset
    return tables


def remarks(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Say what the times of a trace's tables cannot tell."""
    found = [
        f"{table.attrs['untimed']} {name} have no times (the tool could not take them): they are left out"
        for name, table in tables.items()
        if table.attrs.get("untimed")
    ]
    offset = next((table.attrs.get("clock_offset_ns", 0) for table in tables.values()), 0)
    return found + disagreement(offset)


def disagreement(offset_ns: int) -> list[str]:
    """Say that the clocks of host and GPU disagree; nothing where they agree."""
    if not offset_ns:
        return []
    return [
        f"the clocks of host and GPU disagree by about {abs(offset_ns) / 1e9:.3g} s: the window is that of the GPU's "
        "work, and nothing is said of what the host did meanwhile"
    ]
