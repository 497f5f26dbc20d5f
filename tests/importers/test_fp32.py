# SPDX-License-Identifier: MIT
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.errors import InvalidArgument
from dnnsuite.importers import fp32, ncu
from importer_samples import FIXTURES


def table(rows):
    return pd.DataFrame(rows, columns=["name", "duration_ns", "level"]).assign(calls=1)


def test_the_report_of_full_details():
    made = fp32.fp32_report(fp32.read_levels(FIXTURES / "nvvp_full.csv"))
    assert made.total_ns == 10_000
    assert made.level == pytest.approx((4000 * 10 + 1000 * 1 + 0 + 2000 * 7) / 10_000)
    assert fp32.render(made).split("\n") == [
        "total duration (ns): 10000",
        "average util scale: 5.50000",
        "",
        "top 5 kernels with high utilization",
        "util\t%time\tname",
        "9.00\t60.00\tsgemm",
        "",
        "top 5 kernels with low utilization",
        "util\t%time\tname",
        "0.00\t30.00\tidle",
        "1.00\t10.00\trelu",
    ]
    assert (made.left_out, made.left_out_ns) == (1, 500)


def test_the_summary_says_the_same():
    full, brief = (fp32.fp32_report(fp32.read_levels(FIXTURES / f"nvvp_{name}.csv")) for name in ("full", "summary"))
    assert (full.total_ns, full.level) == (brief.total_ns, brief.level)
    assert full.high.equals(brief.high)


def test_newer_gpus_by_ncu():
    made = fp32.fp32_report(fp32.of_ncu(ncu.read(FIXTURES / "ncu_raw.csv")))
    assert made.level == pytest.approx((8500 * 2 + 8500 * 4) / (2 * 8500 + 1_003_000))


@given(st.lists(st.tuples(st.sampled_from("abcdefghijk"), st.integers(1, 10**9), st.integers(0, 10)), min_size=1))
def test_the_mean_lies_between_and_kernels_are_on_their_side(rows):
    made = fp32.fp32_report(table(rows))
    levels = [level for _, _, level in rows]
    assert min(levels) - 1e-9 <= made.level <= max(levels) + 1e-9
    assert (made.high["level"] > made.level).all()
    assert (made.low["level"] <= made.level).all()
    assert made.high["duration_ns"].is_monotonic_decreasing
    assert max(len(made.high), len(made.low)) <= 5


@pytest.mark.parametrize("rows", [[], [("a", 1.0, float("nan"))], [("a", 0.0, 3.0)]])
def test_nothing_to_weigh(rows):
    with pytest.raises(InvalidArgument, match="no launch"):
        fp32.fp32_report(table(rows))


@pytest.mark.parametrize("row", [("a", 1.0, 11.0), ("a", -1.0, 3.0)])
def test_impossible_values(row):
    with pytest.raises(InvalidArgument, match="damaged"):
        fp32.fp32_report(table([("b", 5.0, 3.0), row]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nvprof_trace", "nvprof --metrics"),
        ("nvprof_metrics", "no durations"),
        ("ncu_details_old", "ncu --csv --metrics"),
    ],
)
def test_what_is_missing_is_named(name, message):
    with pytest.raises(InvalidArgument, match=message):
        fp32.read_levels(FIXTURES / f"{name}.csv")
