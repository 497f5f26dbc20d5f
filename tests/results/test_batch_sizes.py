# SPDX-License-Identifier: MIT
"""Rates over batch sizes, the gain of each doubling, and the knee."""

import math

import pandas as pd
import pytest

from dnnsuite import results
from dnnsuite.results import by_batch_size, knee
from result_tables import table

NAN = math.nan


def sizes(*points: tuple[int, float], repeat: int = 0, **more: object) -> pd.DataFrame:
    parts = [table(("serial", "fp32", 1, repeat, rate), batch_size=size, **more) for size, rate in points]
    return results.complete(pd.concat(parts, ignore_index=True).drop(columns=["run_id"]))


@pytest.mark.parametrize(
    ("rates", "found"),
    [
        ([100, 190, 300, 310, 312], 4),  # at sizes 1 2 4 8 16
        ([100, 200, 400, 800, 1600], None),
        ([100, 90, 80, 70, 60], 1),
        ([100, 101, 200, 201, 202], 4),  # a flat step before a steep one is no knee
        ([100, 200, 205, 209, 400], None),
    ],
)
def test_the_knee_is_the_size_after_which_nothing_brings_five_percent_a_doubling(
    rates: list[float], found: int | None
) -> None:
    assert knee([1, 2, 4, 8, 16], rates) == found


def test_one_size_has_no_knee() -> None:
    assert knee([8], [100.0]) is None
    assert knee([], []) is None


def test_steps_that_are_no_doubling_count_as_the_part_of_one() -> None:
    """96 to 128: 3 % are 7.4 % per doubling."""
    assert knee([64, 96, 128], [100, 103, 106.1]) is None
    made = by_batch_size(sizes((96, 100.0), (128, 103.0)))
    assert made["gain_pct"].iloc[1] == pytest.approx(100 * (1.03 ** (1 / math.log2(128 / 96)) - 1))


def test_a_row_per_size_with_failures_and_repeats() -> None:
    first = sizes((1, 100.0), (2, 190.0), (4, 192.0), (8, NAN), message="no room")
    second = sizes((2, 210.0), repeat=1)
    made = by_batch_size(pd.concat([first, second], ignore_index=True)).set_index("batch_size")
    assert made.loc[2, "rate"] == pytest.approx(200)
    assert made.loc[2, "runs"] == 2
    assert made.loc[2, "rate_low"] < 200 < made.loc[2, "rate_high"]
    assert made["status"].tolist() == ["ok", "ok", "ok", "oom"]
    assert made.loc[8, "message"] == "no room"
    assert made.index[made["knee"]].tolist() == [2]
    assert made["gain_pct"].isna().tolist() == [True, False, False, True]


def test_each_job_has_a_curve_of_its_own() -> None:
    both = pd.concat([sizes((1, 100.0), (2, 101.0)), sizes((1, 10.0), (2, 20.0)).assign(job="other")])
    made = by_batch_size(both)
    assert made[made["knee"]][["job", "batch_size"]].to_numpy().tolist() == [["toy", 1]]


def test_unlike_runs_of_a_size_are_not_pooled() -> None:
    both = pd.concat([sizes((1, 100.0), torch="2.12.0"), sizes((1, 100.0), repeat=1, torch="2.13.0")])
    with pytest.raises(results.UnlikeRuns, match="torch differs"):
        by_batch_size(both)
    assert by_batch_size(both, allow_unlike=True).attrs["notes"]
