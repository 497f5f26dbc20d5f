# SPDX-License-Identifier: MIT
"""Weak scaling: the ideal line goes through one process, and only runs of one batch per process are on it."""

import math

import pandas as pd
import pytest

from dnnsuite import results
from dnnsuite.errors import InvalidArgument
from dnnsuite.results import weak_scaling
from result_tables import table

NAN = math.nan
# SC20's figure (2020), read off: V100s with a batch of 128 each.
ORIGINAL = [(1, "bs128", 2580.0), (4, "bs512", 8300.0), (8, "bs1024", 17000.0), (8, "bs1024-warmup", 17400.0),
            (16, "bs2048", 34200.0)]  # fmt: skip


def runs(*points: tuple[int, str, float], batch: int = 128, half: float = NAN, **more: object) -> pd.DataFrame:
    parts = []
    for processes, job, rate in points:
        part = table(("ddp" if processes > 1 else "serial", "fp32", 1, 0, rate), kind="training", **more)
        part = part.assign(job=job, processes=processes, batch_size=batch * processes, unit="images/s")
        parts.append(part.assign(low=rate - half, high=rate + half, run=f"{job}-{processes}"))
    return results.complete(pd.concat(parts, ignore_index=True).drop(columns="run_id"))


def test_the_originals_figure_has_the_originals_efficiency() -> None:
    made = weak_scaling(runs(*ORIGINAL))
    assert made["processes"].tolist() == [1, 4, 8, 8, 16]
    assert made["ideal"].iloc[-1] == pytest.approx(16 * 2580)
    assert made["efficiency"].iloc[0] == 1
    assert 0.81 <= made["efficiency"].iloc[-1] <= 0.83
    assert made["efficiency_low"].isna().all()


def test_the_interval_of_the_efficiency_has_that_of_both_rates() -> None:
    made = weak_scaling(runs((1, "a", 100.0), (2, "b", 180.0), half=5.0)).set_index("processes")
    relative = math.hypot(5 / 100, 5 / 180)
    assert made.loc[2, "efficiency"] == pytest.approx(0.9)
    assert made.loc[2, "efficiency_high"] == pytest.approx(0.9 * math.exp(relative))
    assert made.loc[1, "efficiency_low"] == pytest.approx(math.exp(-0.05))


def test_without_one_process_the_smallest_number_is_the_measure() -> None:
    made = weak_scaling(runs((2, "a", 100.0), (8, "b", 300.0))).set_index("processes")
    assert made["ideal"].tolist() == [100, 400]


def test_each_batch_per_process_is_a_curve() -> None:
    both = pd.concat([runs((1, "a", 10.0), (2, "b", 19.0)), runs((1, "c", 8.0), (2, "d", 12.0), batch=64)])
    made = weak_scaling(both)
    assert made.groupby("batch_per_process")["efficiency"].max().to_dict() == {64: 1.0, 128: 1.0}
    assert made["efficiency"].tolist() == pytest.approx([1, 0.75, 1, 0.95])


def test_what_makes_no_curve_is_told() -> None:
    strong = pd.concat([runs((1, "a", 10.0), batch=128), runs((2, "b", 19.0), batch=64)])
    with pytest.raises(InvalidArgument, match="one batch per process; these have 128 on 1, 64 on 2"):
        weak_scaling(strong)
    with pytest.raises(InvalidArgument, match="no training run with a rate"):
        weak_scaling(runs((1, "a", 10.0), (2, "b", 19.0)).assign(kind="suite"))


def test_unlike_runs_are_refused() -> None:
    both = pd.concat([runs((1, "a", 10.0), data="CIFAR-100"), runs((2, "b", 19.0), data="synthetic")])
    with pytest.raises(results.UnlikeRuns, match="data differs"):
        weak_scaling(both)
    assert weak_scaling(both, allow_unlike=True).attrs["notes"]
