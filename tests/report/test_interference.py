# SPDX-License-Identifier: MIT
import math

import pytest

from dnnsuite import report, results
from dnnsuite.errors import InvalidArgument
from report_runs import record


def runs(rates, copies, cpu="EPYC"):
    return [
        record(repeat=run, slot=slot, rate=rate, copies=copies, cpu=cpu)
        for run, rate in enumerate(rates)
        for slot in range(copies)
    ]


def table(suite, alone, shared, **more):
    one = suite(*runs(alone, 1), directory="one")
    many = suite(*runs(shared, 2, **more), directory="many")
    return report.make([many], alone=[one]).interference


def test_sharing_that_halves_the_rate(suite):
    row = table(suite, [100, 101, 99, 100], [50, 50.5, 49.5, 50]).loc["vae"]
    assert row["slowdown"] == pytest.approx(2)
    assert row["machine_gain"] == pytest.approx(1)
    assert row["low"] < 2 < row["high"]
    assert row["low"] * row["high"] == pytest.approx(4)  # the interval is that of a ratio
    assert row["verdict"] == "slower"


def test_no_interference_is_the_same_and_noise_is_inconclusive(suite):
    assert table(suite, [100, 100.2, 99.8, 100], [100, 100.1, 99.9, 100]).loc["vae", "verdict"] == "same"


def test_a_run_of_which_a_copy_failed_does_not_count(suite):
    one = suite(*runs([100, 101, 99, 100], 1), directory="one")
    lost = [
        record(repeat=4, slot=0, rate=100, copies=2),  # which had the machine to itself
        record(repeat=4, slot=1, copies=2, failure="oom"),
    ]
    many = suite(*runs([50, 50.5, 49.5, 50], 2), *lost, directory="many")
    made = report.make([many], alone=[one])
    row = made.interference.loc["vae"]
    assert row["slowdown"] == pytest.approx(2)
    assert (row["machine_gain"], row["left_out"]) == (pytest.approx(1), 1)
    assert made.summary.loc["vae", "machine_per_s"] == pytest.approx(100)
    assert made.summary.loc["vae", ["runs", "failed"]].tolist() == [4, 1]
    with pytest.raises(InvalidArgument, match="all ended well"):
        report.make([suite(*lost, directory="lost")], alone=[one])


def test_a_run_of_which_the_record_of_a_copy_is_lost_does_not_count_for_any_reader(suite):
    one = suite(*runs([100, 101, 99, 100], 1), directory="one")
    lost = record(repeat=4, slot=0, rate=100, copies=2)  # who knows what became of the other
    many = suite(*runs([50, 50.5, 49.5, 50], 2), lost, directory="many")
    made = report.make([many], alone=[one])
    row = made.interference.loc["vae"]
    assert (row["slowdown"], row["left_out"]) == (pytest.approx(2), 1)
    assert made.summary.loc["vae", ["runs", "machine_per_s"]].tolist() == [4, pytest.approx(100)]
    table = results.load(many)
    summary = results.summarize(table).iloc[0]  # what plots and notebooks show
    assert (summary["runs"], summary["rate"]) == (4, pytest.approx(50))
    assert "vae" not in results.wide(results.load(suite(lost, directory="lost"))).to_string()
    (compared,) = results.compare(table, results.load(one), ignoring=("copies",))
    assert compared.runs == (4, 4)


def test_noise_is_inconclusive(suite):
    row = table(suite, [100, 60, 140, 90], [95, 55, 130, 80]).loc["vae"]
    assert row["verdict"] == "inconclusive"
    assert math.isfinite(row["low"])


def test_unlike_machines_and_missing_jobs_are_refused(suite):
    with pytest.raises(report.UnlikeRuns, match="processor differs"):
        table(suite, [100, 100], [50, 50], cpu="Xeon")


def test_one_must_be_alone(suite):
    many = suite(*runs([1, 1], 2))
    with pytest.raises(InvalidArgument, match="no job was measured both"):
        report.make([many], alone=[many])
