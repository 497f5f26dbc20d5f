# SPDX-License-Identifier: MIT
"""Sums over two stretches of a trace, by hand."""

import numpy as np

from dnnsuite.importers._merging import Merged, Stretch
from dnnsuite.importers._trace_rows import TraceRows
from dnnsuite.importers.kineto import tables_of_trace

LIMITS = np.iinfo(np.int64)


def stretch(begin, end, windows, kernels):
    rows = TraceRows()
    for t0_us, dur_us in kernels:
        args = {"device": 0, "correlation": 1}
        rows.add({"ph": "X", "cat": "kernel", "name": "k", "ts": t0_us, "dur": dur_us, "args": args})
    return Stretch(begin, end, windows, tables_of_trace(rows.columns(), rows.strings))


def test_a_kernel_over_the_cut_counts_once_and_a_gap_over_it_is_one():
    """Kernels 0-1, 3-5 (over the cut at 4) and 9-10 us; then the same with a cut at 7, in the gap."""
    for cut, parts in ((4_000, [[(0, 1), (3, 2)], [(3, 2), (9, 1)]]), (7_000, [[(0, 1), (3, 2)], [(9, 1)]])):
        merged = Merged([(0, 10_000)], main=0)
        merged.add(stretch(LIMITS.min, cut, [(0, cut)], parts[0]))
        merged.add(stretch(cut, LIMITS.max, [(cut, 10_000)], parts[1]))
        found = merged.results()
        gpu = found["gpu"].iloc[0]
        assert [gpu[name] for name in ("kernels", "kernel_ns", "idle_ns")] == [3, 4_000, 6_000]
        assert found["idle_gaps"]["gap_ns"].tolist() == [4_000, 2_000]
        kernels = found["kernels_by_name"].iloc[0]
        assert [kernels[name] for name in ("calls", "total_ns", "median_ns")] == [3, 4_000, 1_000]
