# SPDX-License-Identifier: MIT
"""What the times of a trace tell, and what they cannot: work without times, and clocks that disagree."""

import pandas as pd
import pytest

from dnnsuite import importers
from dnnsuite.importers._extent import clock_offset_ns, timed, with_windows
from importer_samples import nvvp_schema, sqlite

SECOND = 10**9


def test_the_extent_of_all_tables_or_the_windows_that_are_known():
    tables = {"a": pd.DataFrame({"t0_ns": [5, 7], "t1_ns": [6, 9]}), "b": pd.DataFrame({"t0_ns": [2], "t1_ns": [3]})}
    assert with_windows(tables)["b"].attrs["windows"] == [[2, 9]]
    assert with_windows(tables, [(1, 4)])["a"].attrs["windows"] == [[1, 4]]
    assert with_windows({"a": tables["a"].head(0)})["a"].attrs["windows"] == []


@pytest.mark.parametrize(("absolute", "left"), [(False, [5, 0, 9]), (True, [5])])
def test_work_whose_times_could_not_be_taken_is_left_out(absolute, left):
    kernels = pd.DataFrame({"t0_ns": [0, 5, 0, 9], "t1_ns": [0, 6, 3, 0]})
    found = timed({"kernels": kernels, "markers": kernels.copy()}, absolute)
    assert found["kernels"]["t0_ns"].tolist() == left
    assert found["kernels"].attrs["untimed"] == 4 - len(left)
    assert len(found["markers"]) == 4  # a mark may be at 0


def test_a_session_does_not_begin_in_1970_and_the_rows_are_counted(tmp_path):
    tables = nvvp_schema()
    name = "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"
    columns, rows = tables[name]
    places = [columns.split().index(side) for side in ("start", "end")]
    lost = [0 if place in places else value for place, value in enumerate(rows[0])]
    before = importers.load(sqlite(tmp_path / "a.nvvp", tables))
    after = importers.load(sqlite(tmp_path / "b.nvvp", tables | {name: (columns, [*rows, tuple(lost)])}))
    assert after.windows == before.windows
    assert after.tables["kernels"].equals(before.tables["kernels"])
    assert "1 kernels have no times (the tool could not take them): they are left out" in after.notes


def trace(offset_ns, calls=((0, 10), (SECOND, SECOND + 10))):
    api = pd.DataFrame(calls, columns=["t0_ns", "t1_ns"]).assign(correlation=[1, 2])
    kernels = pd.DataFrame({"t0_ns": [50, SECOND + 50], "t1_ns": [90, SECOND + 400], "correlation": [1, 2]})
    kernels[["t0_ns", "t1_ns"]] += offset_ns
    return {"kernels": kernels, "api": api}


@pytest.mark.parametrize("offset_ns", [-500_000, -20, 0, 900_000_000])
def test_clocks_that_agree_or_may(offset_ns):
    assert clock_offset_ns(trace(offset_ns)) == 0
    assert with_windows(trace(0))["api"].attrs["windows"] == [[0, SECOND + 400]]


@pytest.mark.parametrize("offset_ns", [116 * SECOND, -5 * SECOND, 414_000 * SECOND, -3_000_000])
def test_clocks_that_disagree_are_noticed(offset_ns):
    found = with_windows(trace(offset_ns))
    told = found["kernels"].attrs["clock_offset_ns"]
    assert told == pytest.approx(offset_ns, rel=0.3)
    assert found["api"].attrs["windows"] == [[50 + offset_ns, SECOND + 400 + offset_ns]]


def test_without_calls_or_work_there_is_nothing_to_disagree():
    both = trace(10**14)
    assert clock_offset_ns({"kernels": both["kernels"], "api": both["api"].head(0)}) == 0
    assert clock_offset_ns({"kernels": both["kernels"].head(0), "api": both["api"]}) == 0
