# SPDX-License-Identifier: MIT
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite import plots, results
from dnnsuite.errors import InvalidArgument
from result_tables import FIXTURES, row, table


def test_ratios_are_paired_by_repeat() -> None:
    # The machine slows down from repeat to repeat; within each the ratio is 2 exactly.
    rates = [100.0, 80.0, 40.0]
    rows = [("serial", "fp32", 1, k, r) for k, r in enumerate(rates)]
    rows += [("hfta", "fp32", 2, k, 2 * r) for k, r in enumerate(rates)]
    fused = row(results.summarize(table(*rows)), "hfta", 2)
    assert fused["normalized"] == pytest.approx(2)
    assert fused["low"] == pytest.approx(2)
    assert fused["high"] == pytest.approx(2)
    assert fused["runs"] == 3
    assert fused["rate_low"] < fused["rate"] < fused["rate_high"]


def test_interval_is_students() -> None:
    ratios = [1.9, 2.0, 2.2]
    rows = [("serial", "fp32", 1, k, 10.0) for k in range(3)]
    rows += [("hfta", "fp32", 2, k, 10 * r) for k, r in enumerate(ratios)]
    fused = row(results.summarize(table(*rows)), "hfta", 2)
    logs = np.log(ratios)
    half = 4.302652729911275 * logs.std(ddof=1) / math.sqrt(3)
    assert fused["low"] == pytest.approx(math.exp(logs.mean() - half))
    assert fused["high"] == pytest.approx(math.exp(logs.mean() + half))


def test_one_run_has_the_interval_from_within() -> None:
    one = pd.concat(
        [
            table(("serial", "fp32", 1, 0, 100.0), low=97.0, high=103.0),
            table(("hfta", "fp32", 2, 0, 200.0), low=192.0, high=208.0),
        ]
    )
    fused = row(results.summarize(one), "hfta", 2)
    assert fused["normalized"] == pytest.approx(2)
    assert fused["low"] == pytest.approx(2 * math.exp(-0.05))  # √(3 %² + 4 %²)
    assert fused["high"] == pytest.approx(2 * math.exp(0.05))
    serial = row(results.summarize(one), "serial", 1)
    assert (serial["normalized"], serial["low"], serial["high"]) == pytest.approx((1, 0.97, 1.03))


def test_without_a_baseline_nothing_is_normalised() -> None:
    summary = results.summarize(table(("hfta", "fp32", 2, 0, 200.0)))
    assert math.isnan(row(summary, "hfta", 2)["normalized"])
    assert row(summary, "hfta", 2)["rate"] == 200


def test_runs_without_a_rate_have_a_summary_without_rows() -> None:
    rated = table(("hfta", "fp32", 1, 0, 2.0))
    summary = results.summarize(rated.assign(metric="acc"))
    assert summary.empty
    assert list(summary.columns) == list(results.summarize(rated).columns)
    with pytest.raises(InvalidArgument, match="nothing to draw"):
        plots.throughput(summary)


def test_failed_runs_are_counted_and_left_out() -> None:
    rows = [
        ("serial", "fp32", 1, 0, 10.0),
        ("hfta", "fp32", 8, 0, math.nan),
        ("hfta", "fp32", 2, 0, math.nan),
        ("hfta", "fp32", 2, 1, 20.0),
    ]
    summary = results.summarize(table(*rows))
    assert summary["mode"].tolist() == ["serial", "hfta", "hfta"]
    nothing, half = row(summary, "hfta", 8), row(summary, "hfta", 2)
    assert (nothing["runs"], nothing["failed"], nothing["failure"]) == (0, 1, "oom")
    assert (half["runs"], half["failed"]) == (1, 1)
    assert half["normalized"] == pytest.approx(2)


@settings(max_examples=25)
@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=6), st.floats(0.1, 10))
def test_the_unit_of_rates_does_not_matter(rates: list[float], factor: float) -> None:
    def normalized(scale: float) -> float:
        rows = [("serial", "fp32", 1, k, scale * r) for k, r in enumerate(rates)]
        rows += [("hfta", "fp32", 2, k, scale * r * (1 + k)) for k, r in enumerate(rates)]
        return float(row(results.summarize(table(*rows)), "hfta", 2)["normalized"])

    assert normalized(factor) == pytest.approx(normalized(1.0))


def test_wide_has_hftas_columns_and_only_measured_values(tmp_path: Path) -> None:
    rows = [("hfta", "fp32", B, k, 10.0 * B + k) for B in (1, 4) for k in range(2)]
    rows += [("serial", "fp32", 1, k, 9.0) for k in range(2)] + [("hfta", "fp32", 8, 0, math.nan)]
    wide = results.wide(table(*rows))
    results.save_csv(wide, tmp_path / "x.csv", index=True)
    read = pd.read_csv(tmp_path / "x.csv", index_col="B")
    assert list(read.columns) == [f"{m}:fp32:{c}" for m in ("serial", "hfta") for c in ("0", "1", "avg", "min", "max")]
    assert read.index.tolist() == [1, 4]
    assert read.loc[4, "hfta:fp32:avg"] == 40.5
    assert math.isnan(read.loc[4, "serial:fp32:avg"])
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_an_unknown_mode_is_last() -> None:
    rows = [
        ("hfta", "fp32", 1, 0, 1.0),
        ("zigzag", "fp32", 1, 0, 1.0),
        ("serial", "amp", 1, 0, 1.0),
        ("ddp", "fp32", 1, 0, 1.0),
        ("serial", "fp32", 1, 0, 1.0),
    ]
    summary = results.summarize(table(*rows))
    assert summary["mode"].tolist() == ["serial", "serial", "hfta", "ddp", "zigzag"]
    assert list(results.wide(table(*rows)).columns)[-1] == "zigzag:fp32:max"


def test_jobs_are_told_apart() -> None:
    both = pd.concat(
        [
            table(("serial", "fp32", 1, 0, 10.0), ("hfta", "fp32", 2, 0, 20.0)),
            table(("serial", "fp32", 1, 0, 1.0), ("hfta", "fp32", 2, 0, 3.0), job="other"),
        ]
    )
    summary = results.summarize(both)
    assert summary[["job", "mode", "normalized"]].values.tolist() == [
        ["other", "serial", 1.0],
        ["other", "hfta", 3.0],
        ["toy", "serial", 1.0],
        ["toy", "hfta", 2.0],
    ]
    assert "toy:hfta:fp32:0" in results.wide(both)


def two_machines(**more: str) -> pd.DataFrame:
    rows = [("serial", "fp32", 1, 0, 10.0), ("hfta", "fp32", 2, 0, 20.0)]
    ours = table(*rows, cpu_model="EPYC", cpus=2, plan_id="a", hostname="a")
    theirs = table(*rows, **{"cpu_model": "Xeon", "cpus": 2, "plan_id": "b", "hostname": "b", **more})
    return pd.concat([ours, theirs], ignore_index=True)


@pytest.mark.parametrize("reduce", [results.summarize, results.wide])
def test_two_machines_are_not_pooled_silently(reduce: Any) -> None:
    with pytest.raises(results.UnlikeRuns, match=r"processor differs: EPYC, 2 CPUs in .*; Xeon, 2 CPUs in "):
        reduce(two_machines())
    assert len(reduce(two_machines(), allow_unlike=True))


def test_what_was_pooled_although_unlike_is_said() -> None:
    summary = results.summarize(two_machines(), allow_unlike=True)
    assert summary["runs"].tolist() == [2, 2]
    assert any("processor differs" in note for note in summary.attrs["notes"])


def test_two_machines_of_one_kind_may_be_pooled() -> None:
    summary = results.summarize(two_machines(cpu_model="EPYC"))
    assert row(summary, "hfta", 2)["runs"] == 2
    assert row(summary, "hfta", 2)["normalized"] == pytest.approx(2)
    assert list(results.wide(two_machines(cpu_model="EPYC")).columns)[:2] == ["serial:fp32:0", "serial:fp32:1"]


def test_a_mode_is_not_normalised_by_another_machines_baseline() -> None:
    mixed = two_machines()
    mixed = mixed[(mixed["mode"] == "serial") == (mixed["hostname"] == "a")]
    with pytest.raises(results.UnlikeRuns, match="toy: processor differs"):
        results.summarize(mixed)


def test_repeats_of_two_plans_are_paired_within_each() -> None:
    rates = {"a": (10.0, 20.0), "b": (40.0, 120.0)}
    both = pd.concat(
        [
            table(("serial", "fp32", 1, 0, serial), ("hfta", "fp32", 2, 0, fused), plan_id=plan)
            for plan, (serial, fused) in rates.items()
        ]
    )
    assert row(results.summarize(both), "hfta", 2)["normalized"] == pytest.approx(math.sqrt(2 * 3))


def test_a_run_of_which_a_copy_failed_does_not_count() -> None:
    lost = math.nan
    rates = [(10.0, 12.0), (30.0, lost), (14.0, 16.0)]  # the other copy then had the machine to itself
    copies = [
        table(("shares", "fp32", 1, repeat, rate), share=str(share), kind="suite", run_id=f"{repeat}-{share}")
        for repeat, own in enumerate(rates)
        for share, rate in enumerate(own)
    ]
    found = row(results.summarize(pd.concat(copies)), "shares", 1)
    assert (found["rate"], found["runs"], found["failed"]) == (13.0, 2, 1)
    none = row(results.summarize(pd.concat(copies[2:4])), "shares", 1)
    assert (none["runs"], none["failure"]) == (0, "oom")
    assert math.isnan(none["rate"])


def test_copies_that_share_the_machine_are_one_run() -> None:
    copies = [
        table(("shares", "fp32", 1, repeat, 10.0 * (repeat + 1) + share), share=str(share), kind="suite")
        for repeat in range(2)
        for share in range(2)
    ]
    found = row(results.summarize(pd.concat(copies)), "shares", 1)
    assert (found["runs"], found["rate"]) == (2, pytest.approx(15.5))


def test_a_rate_of_zero_has_no_ratio_and_no_interval() -> None:
    rows = [("serial", "fp32", 1, k, 0.0) for k in range(2)] + [("hfta", "fp32", 2, k, 1.0) for k in range(2)]
    found = row(results.summarize(table(*rows)), "hfta", 2)
    assert math.isnan(found["normalized"])


def test_a_table_of_an_earlier_version_gives_the_same_summary() -> None:
    loaded = results.load(FIXTURES / "workflow")
    old = pd.read_csv(FIXTURES / "workflow" / "results.csv")
    ours, theirs = results.summarize(loaded), results.summarize(old)
    for mode, B in (("serial", 1), ("hfta", 2), ("concurrent", 2)):
        assert row(ours, mode, B)["rate"] == pytest.approx(row(theirs, mode, B)["rate"])
