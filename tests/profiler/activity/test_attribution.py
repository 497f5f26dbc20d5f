# SPDX-License-Identifier: MIT
"""Kernels belong to the span in which the host launched them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler import definitions
from dnnsuite.profiler.activity import attribute, by_span, innermost, with_launches
from profiler.activity.tables import api, intervals, kernels


def test_a_kernel_belongs_to_where_it_was_launched_not_to_where_it_ran():
    spans = intervals((0, 100), (0, 40), (40, 100), name=["step", "forward", "backward"], step=[7, 7, 7])
    ran = kernels((30, 60, "a", "gemm", 1), (60, 90, "b", "gemm", 2), (90, 130, "c", "norm", 3))
    calls = api(
        (10, 12, "cudaLaunchKernel", 1, 5), (50, 52, "cudaLaunchKernel", 2, 6), (39, 41, "cudaLaunchKernel", 3, 5)
    )
    found = attribute(ran, calls, spans)
    assert found["span"].tolist() == ["forward", "backward", "forward"]
    assert found["step"].tolist() == [7, 7, 7]
    assert found["queue_ns"].tolist() == [20, 10, 51]
    assert found["launch_thread"].tolist() == [5, 6, 5]  # autograd's thread counts like any other
    assert {"launch_t0_ns", "queue_ns", "span", "step"} <= definitions(found).keys() <= {*found.columns}
    table = by_span(found)
    assert table[["span", "class", "calls", "total_ns"]].to_numpy().tolist() == [
        ["forward", "norm", 1, 40],
        ["forward", "gemm", 1, 30],
        ["backward", "gemm", 1, 30],
    ]


def test_the_outer_call_counts_and_an_unrecorded_one_is_missing():
    calls = api((22, 24, "cuLaunchKernel", 9, 1), (20, 25, "cudaLaunchKernel", 9, 1))
    found = with_launches(kernels((30, 31, "a", "gemm", 9), (32, 33, "b", "gemm", 8)), calls)
    assert found["launch_t0_ns"].tolist() == [20, pd.NA]
    assert found["launch_t1_ns"].tolist() == [25, pd.NA]
    spans = intervals((0, 100), name=["step"])
    assert attribute(found, calls, spans)["span"].isna().tolist() == [False, True]


def test_no_calls_and_no_spans():
    ran = kernels((30, 31, "a", "gemm", 9))
    found = attribute(ran, api(), intervals(name=[], step=[]))
    assert found["span"].isna().all()
    assert found["launch_t0_ns"].isna().all()
    assert len(attribute(kernels(), api(), intervals(name=[], step=[]))) == 0


def test_spans_outside_of_any_are_missing_also_at_the_ends():
    spans = intervals((10, 20), name=["s"])
    ran = kernels(*[(t, t + 1, "a", "gemm", t) for t in (9, 10, 19, 20)])
    calls = api(*[(t, t + 1, "f", t, 1) for t in (9, 10, 19, 20)])
    assert attribute(ran, calls, spans)["span"].isna().tolist() == [True, False, False, True]


def test_a_table_without_the_label_is_refused():
    with pytest.raises(InvalidArgument, match="phase"):
        attribute(kernels(), api(), intervals((0, 1), name=["s"]), label="phase")
    with pytest.raises(InvalidArgument, match="span"):
        by_span(kernels())


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), max_size=8),
    st.lists(st.integers(-2, 50), min_size=1, max_size=20),
)
def test_innermost_is_the_one_that_began_last(spans, times):
    table = intervals(*[(t0, t0 + length) for t0, length in spans])
    rows = innermost(table, np.array(times))
    for time, row in zip(times, rows.tolist(), strict=True):
        around = [(t0, -t1, i) for i, (t0, t1) in enumerate(table.to_numpy().tolist()) if t0 <= time < t1]
        if not around:
            assert row == -1
        else:
            t0, minus_t1, _ = max(around)
            assert (table["t0_ns"][row], -table["t1_ns"][row]) == (t0, minus_t1)
