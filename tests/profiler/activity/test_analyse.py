# SPDX-License-Identifier: MIT
"""All analyses at once, on one small window."""

from dnnsuite.profiler import definitions
from dnnsuite.profiler.activity import analyse
from profiler.activity.tables import api, intervals, kernels

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
