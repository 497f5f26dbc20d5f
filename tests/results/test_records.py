# SPDX-License-Identifier: MIT
import math
from pathlib import Path
from typing import Any

import pytest

from dnnsuite._runs.reading import ReadRun
from dnnsuite._runs.record import BadRecord, Metric, Verdict
from dnnsuite.results.loading import rows_of_record
from dnnsuite.results.table import Row
from result_tables import a_record

UPDATES = {"seed_unit": {"name": "updates", "items": 128}}


def rows(**more: Any) -> list[Row]:
    return list(rows_of_record(ReadRun(Path("out/runs/one"), a_record("one", **more))))


def test_a_failed_run_has_one_row_without_a_value() -> None:
    (row,) = rows(verdict=Verdict.failed("oom", "too large"), metrics=())
    assert (row.status, row.failure, row.message, row.metric) == ("failed", "oom", "too large", "throughput")
    assert math.isnan(row.value)


def test_a_run_that_found_nothing_is_not_overlooked() -> None:
    (row,) = rows(metrics=())
    assert row.status == "ok"
    assert math.isnan(row.value)


def test_a_suites_rate_is_also_in_what_the_original_counted() -> None:
    (row,) = rows(kind="suite", value=1280.0, details=UPDATES)
    assert (row.value, row.seed_rate, row.seed_unit) == (1280.0, 10.0, "updates")


def test_sizes_of_a_throughput_curve_are_points_of_their_own() -> None:
    assert rows(kind="throughput", batch_size=8)[0].variant == "batch_size=8"
    assert rows(kind="workflow", batch_size=8)[0].variant == ""


def test_what_scaling_is_judged_by_is_its_efficiency() -> None:
    details = {**UPDATES, "job_metrics": {"efficiency": 0.91}}
    assert rows(kind="suite", job="scaling", details=details)[0].seed_rate == 0.91
    assert math.isnan(rows(kind="suite", job="scaling", details=UPDATES)[0].seed_rate)


def test_other_figures_have_no_seed_rate() -> None:
    metrics = (Metric("throughput", 1.0, "naps/s"), Metric("time/step", 0.1, "s"))
    assert math.isnan(rows(kind="suite", metrics=metrics, details=UPDATES)[1].seed_rate)


@pytest.mark.parametrize(
    "unit",
    [
        None,
        3,
        {},
        {"name": "x"},
        {"name": "x", "items": "two"},
        {"name": "x", "items": -1},
        {"name": "x", "items": 10**400},
    ],
)
def test_a_unit_that_cannot_be_is_refused(unit: Any) -> None:
    with pytest.raises(BadRecord, match="seed_unit"):
        rows(kind="suite", details={"seed_unit": unit})


def test_an_efficiency_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadRecord, match="efficiency is 'high'"):
        rows(kind="suite", job="scaling", details={**UPDATES, "job_metrics": {"efficiency": "high"}})
