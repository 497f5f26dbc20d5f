# SPDX-License-Identifier: MIT
"""Idle gaps of a GPU, and their causes."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler import definitions
from dnnsuite.profiler.activity import attribute, by_span, host_bound, idle_gaps, innermost, utilization, with_launches
from profiler.activity.tables import api, intervals, kernels

WINDOW = [(0, 1000)]


def test_gaps_say_what_the_host_did():
    ran = kernels((100, 200, "a", "gemm", 1), (500, 600, "b", "gemm", 2), (650, 1000, "c", "gemm", 3))
    calls = api(
        (50, 60, "cudaLaunchKernel", 1, 1),
        (210, 440, "cudaMemcpyAsync", 9, 1),  # most of the second gap
        (220, 430, "cuMemcpyHtoDAsync", 9, 1),  # within it: the driver's part is not counted again
        (450, 470, "cudaLaunchKernel", 2, 1),
        (480, 490, "cudaLaunchKernel", 3, 1),
    )
    spans = intervals((0, 205), (205, 449), name=["forward", "data"])
    gaps = idle_gaps(ran, calls, WINDOW, spans=spans)
    assert gaps[["t0_ns", "t1_ns", "gap_ns"]].to_numpy().tolist() == [[200, 500, 300], [0, 100, 100], [600, 650, 50]]
    assert gaps["after"].tolist() == ["b", "a", "c"]
    assert gaps["host_ns"].tolist() == [270, 60, 0]  # c had been launched before: the GPU's own latency
    assert gaps["call"].tolist()[:2] == ["cudaMemcpyAsync", "cudaLaunchKernel"]
    assert gaps["call"].isna().tolist() == [False, False, True]
    assert gaps["call_ns"].tolist() == [230, 10, 0]
    assert gaps["in_calls_ns"].tolist() == [230 + 20 + 10, 10, 0]
    assert gaps["span"].fillna("-").tolist() == ["data", "forward", "-"]
    assert definitions(gaps).keys() == {*gaps.columns}
    share = host_bound(gaps, WINDOW).iloc[0]
    assert (share["idle_ns"], share["host_ns"]) == (450, 330)
    assert share["host_bound_pct"] == pytest.approx(33.0)
    assert idle_gaps(ran, calls, WINDOW, least_ns=100)["gap_ns"].tolist() == [300, 100]


def test_a_copy_ends_a_gap_and_the_window_does():
    copies = intervals((100, 200), device=0, correlation=5, operation="HtoD")
    gaps = idle_gaps(kernels(), api((20, 30, "cudaMemcpyAsync", 5, 1)), WINDOW, memops=copies)
    assert gaps["after"].fillna("-").tolist() == ["-", "HtoD"]
    assert gaps["host_ns"].tolist() == [800, 30]


def test_a_launch_that_was_not_recorded_is_missing():
    gaps = idle_gaps(kernels((100, 1000, "a", "gemm", 1)), api((0, 40, "f", 9, 1)), WINDOW)
    assert gaps["host_ns"].isna().all()
    assert gaps["in_calls_ns"].tolist() == [40]


def test_a_share_that_cannot_be_known_is_missing():
    ran = kernels((100, 400, "a", "gemm", 1), (500, 990, "b", "gemm", 2))
    without_calls = idle_gaps(ran, api(), WINDOW)  # also the last gap's, which no launch ends
    assert without_calls[["host_ns", "in_calls_ns"]].isna().all(axis=None)
    share = host_bound(without_calls, WINDOW).iloc[0]
    assert pd.isna(share["host_ns"])
    assert pd.isna(share["host_bound_pct"])
    assert share["unknown_ns"] == 210
    some = host_bound(idle_gaps(ran, api((420, 450, "f", 2, 1)), WINDOW), WINDOW).iloc[0]
    assert pd.isna(some["host_bound_pct"])  # 10 % of the time are a gap of unknown cause
    nearly_all = kernels((30, 400, "a", "gemm", 1), (500, 1000, "b", "gemm", 2))
    most = host_bound(idle_gaps(nearly_all, api((420, 450, "f", 2, 1)), WINDOW), WINDOW).iloc[0]
    assert (most["unknown_ns"], most["host_bound_pct"]) == (30, 5.0)


def test_each_gpu_has_its_gaps():
    both = pd.concat([kernels((0, 500, "a", "gemm", 1)), kernels((0, 900, "b", "gemm", 2), device=1)])
    both.attrs["definitions"] = dict.fromkeys(both, "by hand")
    gaps = idle_gaps(both, api(), WINDOW)
    assert dict(zip(gaps["device"], gaps["gap_ns"], strict=True)) == {0: 500, 1: 100}


def test_no_work_no_rows():
    gaps = idle_gaps(kernels(), api(), WINDOW)
    assert len(gaps) == 0
    assert len(host_bound(gaps, WINDOW)) == 0


@given(
    st.lists(st.tuples(st.integers(-50, 1000), st.integers(0, 200)), min_size=1, max_size=10),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 200), st.integers(0, 2)), max_size=10),
)
def test_gaps_and_work_fill_the_window(work, calls):
    ran = kernels(*[(t0, t0 + length, "k", "gemm", i) for i, (t0, length) in enumerate(work)])
    rows = [(t0, t0 + length, "f", i, thread) for i, (t0, length, thread) in enumerate(calls)]
    gaps = idle_gaps(ran, api(*rows), WINDOW)
    assert gaps["gap_ns"].sum() == utilization(ran, WINDOW)["idle_ns"][0]
    for row in gaps.itertuples():
        assert row.gap_ns > 0
        assert pd.isna(row.in_calls_ns) if not calls else 0 <= row.in_calls_ns <= row.gap_ns
        assert pd.isna(row.host_ns) or 0 <= row.host_ns <= row.gap_ns
        assert pd.isna(row.call) == (row.call_ns == 0)


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
