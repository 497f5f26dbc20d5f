# SPDX-License-Identifier: MIT
"""Utilisation of a GPU."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler import definitions
from dnnsuite.profiler.activity import corrected_utilization_pct, exposed_communication, utilization
from profiler.activity.tables import intervals, kernels


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
