# SPDX-License-Identifier: MIT
"""The gain of the best array over one model at a time and over processes, from tables of known rates."""

import math
from typing import Any

import pandas as pd
import pytest

from dnnsuite import results
from dnnsuite.results.batch_sizes import PER_CPU_SECOND
from result_tables import table


def measured(B_of: dict[tuple[str, int], tuple[float, float]], metric: str = "throughput", **more: Any) -> pd.DataFrame:
    """Two repeats of each point (mode, B)."""
    rows = [(mode, "fp32", B, repeat, rates[repeat]) for (mode, B), rates in B_of.items() for repeat in (0, 1)]
    return table(*rows, **{"metric": metric, **more})


WALL = {
    ("serial", 1): (10.0, 20.0),
    ("concurrent", 2): (15.0, 30.0),
    ("concurrent", 4): (14.0, 28.0),
    ("hfta", 2): (20.0, 40.0),
    ("hfta", 4): (30.0, 60.0),
}


def test_the_best_array_is_divided_by_the_best_processes() -> None:
    """In each repeat: a machine that is twice as fast in the second changes nothing."""
    (row,) = results.gains(measured(WALL)).to_dict("records")
    assert (row["job"], row["precision"], row["B"], row["runs"]) == ("toy", "fp32", 4, 2)
    for name, ratio in (("over_serial", 3.0), ("over_concurrent", 2.0)):
        assert [row[f"{name}{end}"] for end in ("", "_low", "_high")] == pytest.approx([ratio] * 3)


def test_by_cpu_time() -> None:
    cpu = {("serial", 1): (5.0, 5.0), ("concurrent", 2): (4.0, 5.0), ("hfta", 2): (10.0, 10.0), ("hfta", 4): (9.0, 9.0)}
    both = pd.concat([measured(WALL), measured(cpu, PER_CPU_SECOND)], ignore_index=True)
    (row,) = results.gains(both, PER_CPU_SECOND).to_dict("records")
    assert row["B"] == 2
    assert row["over_serial"] == pytest.approx(2.0)
    assert row["over_concurrent"] == pytest.approx(math.sqrt(2.5 * 2.0))
    assert row["over_concurrent_low"] < row["over_concurrent"] < row["over_concurrent_high"]
    assert results.gains(both).loc[0, "B"] == 4


def test_what_was_not_measured_is_nan() -> None:
    (row,) = results.gains(measured({("hfta", 2): (1.0, 1.0)})).to_dict("records")
    assert math.isnan(row["over_serial"])
    assert math.isnan(row["over_concurrent"])
    assert results.gains_markdown(pd.DataFrame([row])).endswith("| - | - |\n")


def test_without_arrays_there_is_no_row() -> None:
    assert results.gains(measured({("serial", 1): (1.0, 1.0)})).empty


def test_half_precision_is_divided_by_single() -> None:
    half = table(("hfta", "bf16", 2, 0, 40.0), ("hfta", "bf16", 2, 1, 80.0))
    found = results.gains(pd.concat([measured(WALL), half], ignore_index=True))
    assert found.set_index("precision")["over_serial"].to_dict() == pytest.approx({"bf16": 4.0, "fp32": 3.0})


def test_runs_that_are_unlike_are_not_mixed() -> None:
    mixed = pd.concat([measured(WALL, threads=1), measured(WALL, threads=2, plan_id="b")], ignore_index=True)
    with pytest.raises(results.UnlikeRuns, match="threads"):
        results.gains(mixed)
    assert results.gains(mixed, allow_unlike=True).attrs["notes"]


def test_as_markdown() -> None:
    lines = results.gains_markdown(results.gains(measured(WALL))).splitlines()
    assert lines[2] == "| toy | 4 | 3.00 [3.00, 3.00] | 2.00 [2.00, 2.00] |"
    assert {line.count("|") for line in lines} == {5}
