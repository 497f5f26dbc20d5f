# SPDX-License-Identifier: MIT
import math
import statistics

import pytest
from scipy import stats

from dnnsuite.report._entries import FAILURES, ReportEntry
from dnnsuite.report._summary import DEFINITIONS, device_table, failures, isolation, summary_table


def entry(rate, run=0, device=0, failure=None, **more):
    rate = math.nan if failure else rate
    return ReportEntry("vae", str(run), str(device), rate, rate, failure=failure, isolation="cgroup", **more)


def test_the_interval_is_students_over_runs_as_a_factor():
    runs = [98.0, 101.0, 103.0, 100.0, 99.0]
    row = summary_table([entry(rate, run) for run, rate in enumerate(runs)]).loc["vae"]
    factor = math.exp(stats.t.ppf(0.975, 4) * statistics.stdev(runs) / math.sqrt(5) / 100.2)
    assert row["rate_per_s"] == pytest.approx(100.2)
    assert row["low_per_s"] == pytest.approx(100.2 / factor)
    assert row["high_per_s"] == pytest.approx(100.2 * factor)
    assert row["between_runs_pct"] == pytest.approx(100 * statistics.stdev(runs) / 100.2)


def test_no_interval_is_negative():
    row = summary_table([entry(1.0, 0), entry(100.0, 1)]).loc["vae"]
    assert 0 < row["low_per_s"] < row["rate_per_s"] < row["high_per_s"]


def test_devices_failures_and_flags():
    entries = [
        entry(90.0, 0, 0),
        entry(110.0, 0, 1, flags=("throttled",)),
        entry(0, 2, 2, "oom"),
        entry(150.0, 2, 0, counts=False),  # which had more of the machine
        entry(0, 1, 0, "odd"),
    ]
    row = summary_table(entries).loc["vae"]
    assert row["between_devices_pct"] == pytest.approx(20)
    assert (row["failed"], row["flags"], row["isolation"]) == (2, 1, "cgroup")
    assert device_table(entries).loc["vae"].to_list() == pytest.approx([90 / 110, 1])
    assert list(failures(entries)) == ["oom", "crash"]  # an unknown class is a crash
    assert isolation(entries) == {"cgroup": 5}


def test_a_job_that_never_worked_has_a_row():
    row = summary_table([entry(0, failure="timeout")]).loc["vae"]
    assert (row["runs"], row["failed"]) == (0, 1)
    assert math.isnan(row["rate_per_s"])


def test_columns_are_defined():
    table = summary_table([entry(1.0)])
    assert set(table.columns) - {"unit", "isolation"} == set(DEFINITIONS)
    assert len(set(FAILURES)) == len(FAILURES)
