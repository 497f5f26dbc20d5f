# SPDX-License-Identifier: MIT
"""Utilisation of a GPU."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler import definitions
from dnnsuite.profiler.activity import (
    analyse,
    by_class,
    by_kernel,
    corrected_utilization_pct,
    exposed_communication,
    utilization,
)
from profiler.activity.tables import api, intervals, kernels


def test_the_worked_example_of_the_dnn_training_suite():
    assert corrected_utilization_pct(session_s=1.609, raw_pct=0.5, overhead_s=1.3) == pytest.approx(2.6, abs=0.05)
    assert pytest.approx(0.008045) == 1.609 * 0.5 / 100


def test_the_same_example_from_records():
    window = [(0, 1_609_000_000)]
    ran = kernels((1_400_000_000, 1_408_045_000, "gemm", "gemm", 1))
    cost = intervals((0, 900_000_000), (100_000_000, 1_300_000_000))
    row = utilization(ran, window, overhead=cost).iloc[0]
    assert row["raw_pct"] == pytest.approx(0.5)
    assert row["overhead_ns"] == 1_300_000_000
    assert (
        row["compute_pct"] == pytest.approx(corrected_utilization_pct(1.609, 0.5, 1.3)) == pytest.approx(2.6, abs=0.05)
    )


@pytest.mark.parametrize("arguments", [(1, 50, 1), (1, 50, 2), (1, -1, 0), (1, 5, -1), (math.nan, 5, 0)])
def test_impossible_sessions_are_refused(arguments):
    with pytest.raises(InvalidArgument, match="shorter than the session"):
        corrected_utilization_pct(*arguments)


def test_overlapping_kernels_count_once_and_windows_cut():
    ran = kernels(
        (0, 50, "a", "gemm", 1), (40, 60, "b", "gemm", 2), (90, 200, "c", "gemm", 3), (300, 310, "d", "gemm", 4)
    )
    row = utilization(ran, [(10, 100)], memops=intervals((55, 70), device=0)).iloc[0]
    assert row["kernel_ns"] == 50 + 10
    assert row["kernel_sum_ns"] == 40 + 20 + 10
    assert row["kernels"] == 3
    assert row["memop_ns"] == 15
    assert row["idle_ns"] == 90 - (60 + 10)
    assert row["concurrency"] == pytest.approx(70 / 60)
    assert row["raw_pct"] == row["compute_pct"] == pytest.approx(100 * 60 / 90)


def test_each_gpu_has_its_row_and_each_column_its_definition():
    both = pd.concat([kernels((0, 10, "a", "gemm", 1), device=3), kernels((0, 40, "a", "gemm", 2), device=1)])
    table = utilization(both, [(0, 100)], memops=intervals((0, 5), device=4))
    assert table["device"].tolist() == [1, 3, 4]
    assert table["kernel_ns"].tolist() == [40, 10, 0]
    assert math.isnan(table["concurrency"].iloc[2])
    assert definitions(table).keys() == {*table.columns}


def test_graphs_count_as_work():
    table = utilization(kernels(), [(0, 100)], graphs=intervals((0, 30), device=0))
    assert table["kernel_ns"].tolist() == [30]


def test_nothing_ran():
    assert len(utilization(kernels(), [(0, 100)])) == 0
    assert len(exposed_communication(kernels(), [(0, 100)])) == 0
    assert math.isnan(
        utilization(kernels((0, 1, "a", "gemm", 1)), [(0, 9)], overhead=intervals((0, 9)))["compute_pct"][0]
    )


def test_communication_behind_computation_is_not_exposed():
    ran = kernels(
        (0, 50, "nccl", "communication", 1), (20, 40, "gemm", "gemm", 2), (60, 70, "nccl", "communication", 3)
    )
    row = exposed_communication(ran, [(0, 65)]).iloc[0]
    assert (row["comm_ns"], row["exposed_comm_ns"]) == (55, 35)
    assert row["exposed_pct"] == pytest.approx(100 * 35 / 65)


ROWS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 30), st.sampled_from(["communication", "gemm"])), max_size=12
)


@given(ROWS)
def test_laws(rows):
    ran = kernels(*[(t0, t0 + length, kind, kind, i) for i, (t0, length, kind) in enumerate(rows)])
    for row in utilization(ran, [(10, 110)]).itertuples():
        assert 0 <= row.kernel_ns <= min(row.kernel_sum_ns, row.window_ns)
        assert row.kernel_ns + row.idle_ns == row.window_ns
    for row in exposed_communication(ran, [(10, 110)]).itertuples():
        assert 0 <= row.exposed_comm_ns <= row.comm_ns <= 100


RAN = kernels(
    (0, 10, "small", "norm", 1), (10, 40, "big", "gemm", 2), (40, 90, "big", "gemm", 3), (90, 100, None, "other", 4)
)


def test_kernels_by_name_longest_first():
    table = by_kernel(RAN)
    assert table["name"].fillna("-").tolist() == ["big", "small", "-"]
    assert table["calls"].tolist() == [2, 1, 1]
    assert table["total_ns"].tolist() == [80, 10, 10]
    assert table["share_pct"].tolist() == pytest.approx([80, 10, 10])
    big = table.iloc[0]
    assert (big["mean_ns"], big["median_ns"], big["least_ns"], big["most_ns"]) == (40, 40, 30, 50)
    assert definitions(table).keys() == {*table.columns}
    assert by_kernel(RAN, top=1)["name"].tolist() == ["big"]


def test_classes():
    table = by_class(RAN)
    assert table["class"].tolist() == ["gemm", "norm", "other"]
    assert table["share_pct"].sum() == pytest.approx(100)


def test_of_no_kernel_there_are_no_sums():
    assert len(by_kernel(kernels())) == 0
    assert len(by_class(kernels())) == 0


TABLES = {
    "kernels": kernels(
        (100, 300, "ampere_sgemm", "gemm", 1),
        (250, 400, "nccl", "communication", 2),
        (600, 700, "relu", "elementwise", 3),
    ),
    "api": api((50, 60, "launch", 1, 7), (70, 80, "launch", 2, 7), (550, 560, "launch", 3, 7)),
    "memops": intervals((720, 760), device=0, correlation=9, operation="HtoD"),
    "overhead": intervals((800, 1000)),
}
SPANS = intervals((0, 500), (500, 1000), phase=["forward", "backward"])


def test_everything_at_once():
    found = analyse(TABLES, [(0, 1000)], SPANS, label="phase")
    gpu = found["gpu"].iloc[0]
    assert (gpu["kernel_ns"], gpu["memop_ns"], gpu["overhead_ns"], gpu["idle_ns"]) == (400, 40, 200, 560)
    assert (gpu["raw_pct"], gpu["compute_pct"]) == (40.0, 50.0)
    assert (gpu["comm_ns"], gpu["exposed_comm_ns"]) == (150, 100)
    assert gpu["host_ns"] == 60 + 160 + 240  # before sgemm, before relu, and the end, where nothing was launched
    assert found["kernels_by_class"]["class"].tolist() == ["gemm", "communication", "elementwise"]
    assert found["kernels_by_name"]["name"].tolist() == ["ampere_sgemm", "nccl", "relu"]
    assert found["kernels_by_span"]["span"].tolist() == ["forward", "forward", "backward"]
    assert found["idle_gaps"]["gap_ns"].tolist() == [240, 200, 100, 20]
    assert found["idle_gaps"]["span"].tolist() == ["backward", "backward", "forward", "backward"]
    for table in found.values():
        assert definitions(table).keys() == {*table.columns}


def test_without_spans_and_other_tables():
    found = analyse({name: TABLES[name] for name in ("kernels", "api")}, [(0, 1000)])
    assert {*found} == {"gpu", "kernels_by_name", "kernels_by_class", "idle_gaps"}


def test_no_kernel_no_tables():
    assert analyse({"kernels": kernels(), "api": api()}, [(0, 1000)]) == {}
