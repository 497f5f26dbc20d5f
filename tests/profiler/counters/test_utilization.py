# SPDX-License-Identifier: MIT
"""TBD's formula against a loop written out, and its defects, which are not repeated."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler import definitions
from dnnsuite.profiler.counters import CORES, core_utilization, format_core_utilization, step_utilization
from dnnsuite.profiler.counters.gpu_counters import utilization_lines, utilization_record

KERNELS = st.lists(st.tuples(st.integers(1, 10**9), st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=30).map(
    lambda rows: pd.DataFrame(rows, columns=["cycles", "fma", "tensor"])
)


def of_busy(table, core):
    return table[table["core"] == core]["pct_of_busy"].item()


def test_worked_example():
    kernels = pd.DataFrame(
        {
            "cycles": [1000, 3000, 4000],
            "fma": [10.0, 20.0, 0.0],
            "fp16": [0.0, 0.0, 0.0],
            "tensor": [50.0, 0.0, 80.0],
            "sfu": [1.0, 2.0, 3.0],
        }
    )
    found = core_utilization(kernels, step_cycles=16000)
    assert list(found["core"]) == list(CORES)
    assert of_busy(found, "fma") == pytest.approx((1000 * 10 + 3000 * 20) / 8000)
    assert of_busy(found, "tensor") == pytest.approx((1000 * 50 + 4000 * 80) / 8000)
    assert found["pct_of_step"].tolist() == pytest.approx([found["pct_of_busy"][i] / 2 for i in range(4)])
    assert set(definitions(found)) == set(found.columns)


def test_the_last_kernel_counts():
    kernels = pd.DataFrame({"cycles": [1, 1], "fma": [0.0, 100.0]})
    assert of_busy(core_utilization(kernels, ["fma"]), "fma") == 50


def test_printed_as_tbd_did():
    kernels = pd.DataFrame({"cycles": [100000], "fma": [17.50765], "fp16": [0.0], "tensor": [1 / 3], "sfu": [0.5]})
    assert format_core_utilization(core_utilization(kernels)).splitlines() == [
        "fma\t17.50765 %",
        "fp16\t0.00000 %",
        "tensor\t0.33333 %",
        "sfu\t0.50000 %",
    ]


def test_what_was_not_counted_is_left_out_and_said():
    kernels = pd.DataFrame({"cycles": [1, 1, math.nan], "fma": [10.0, math.nan, 90.0]})
    found = core_utilization(kernels, ["fma"]).iloc[0]
    assert (found["pct_of_busy"], found["counted"], found["left_out"]) == (10, 1, 2)
    nothing = core_utilization(kernels.iloc[:0], ["fma"]).iloc[0]
    assert math.isnan(nothing["pct_of_busy"])
    assert nothing["counted"] == 0


def test_tables_that_make_no_sense():
    kernels = pd.DataFrame({"cycles": [5, 5], "fma": [1.0, 1.0]})
    for table, arguments, words in (
        (kernels, {}, "no column fp16, tensor, sfu"),
        (kernels.assign(cycles=-1), {"cores": ["fma"]}, "negative"),
        (kernels, {"cores": ["fma"], "step_cycles": 9}, "overlap in time"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            core_utilization(table, **arguments)


@given(KERNELS)
def test_it_is_a_mean_and_equals_the_loop(kernels):
    found = core_utilization(kernels, ["fma", "tensor"], step_cycles=float(kernels["cycles"].sum()) * 2)
    for core in ("fma", "tensor"):
        weighted = total = 0.0
        for cycles, percent in zip(kernels["cycles"], kernels[core], strict=True):
            weighted, total = weighted + cycles * percent, total + cycles
        assert of_busy(found, core) == pytest.approx(weighted / total, abs=1e-9)
        assert kernels[core].min() - 1e-9 <= of_busy(found, core) <= kernels[core].max() + 1e-9
        assert found[found["core"] == core]["pct_of_step"].item() == pytest.approx(of_busy(found, core) / 2)


@given(KERNELS, st.permutations(range(30)))
def test_the_order_of_kernels_does_not_matter(kernels, order):
    shuffled = kernels.iloc[[i for i in order if i < len(kernels)]]
    assert of_busy(core_utilization(shuffled, ["fma"]), "fma") == pytest.approx(
        of_busy(core_utilization(kernels, ["fma"]), "fma")
    )


def counters(rows):
    columns = ["step", "mark", "role", "value", "unit"]
    return pd.DataFrame(rows, columns=columns)


def test_over_steps_busy_is_the_share_in_which_the_gpu_worked():
    table = counters(
        [
            (0, "", "gpu_active", 50.0, "%"),
            (0, "", "fma", 20.0, "%"),
            (0, "backward", "fma", 99.0, "%"),
            (1, "", "gpu_active", 25.0, "%"),
            (1, "", "fma", 10.0, "%"),
            (1, "", "time", 1e6, "ns"),
            (2, "", "tensor", 30.0, "%"),
            (3, "", "tensor", math.nan, "%"),
        ]
    )
    found = step_utilization(table).set_index("core")
    assert found.loc["fma", ["pct_of_step", "pct_of_busy", "counted"]].tolist() == [15, 40, 2]
    assert found.loc["fma", "sd"] == pytest.approx(50**0.5)
    # Another group had the step of the tensor cores: the mean share stands for it.
    assert found.loc["tensor", "pct_of_busy"] == pytest.approx(30 / 0.375)
    assert found.loc["tensor", ["counted", "left_out"]].tolist() == [1, 1]
    assert "time" not in found.index


def test_without_the_gpus_share_busy_is_unknown():
    found = step_utilization(counters([(0, "", "fma", 20.0, "%")])).iloc[0]
    assert found["pct_of_step"] == 20
    assert math.isnan(found["pct_of_busy"])
    assert step_utilization(counters([])).empty


def test_on_a_page_and_in_a_record():
    table = step_utilization(counters([(0, "", "gpu_active", 50.0, "%"), (0, "", "fma", 20.0, "%")]))
    page = list(utilization_lines(table))
    assert page[-1].split() == ["fma", "20.00", "40.00", "1"]
    assert [row["core"] for row in utilization_record(table)] == ["gpu_active", "fma"]
    assert list(utilization_lines(None)) == list(utilization_lines(table.iloc[:0])) == []
    assert utilization_record(None) == []
