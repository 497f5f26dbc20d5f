# SPDX-License-Identifier: MIT
"""A search in several modes: what may be said of their times."""

import pytest

from dnnsuite.tuning.comparison import compare
from small_sweep import run


def search(mode, repeat, folder, again):
    return run(folder, "random", mode=mode, seed=repeat, epochs=1, resume=again)


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_ratio_of_times_needs_two_repeats_each_run_at_once(tmp_path, repeats):
    found = compare(search, ["hfta", "serial"], repeats, tmp_path, resume=False, unavailable={})
    assert found.same
    assert [{"speedup", "low", "high"} <= row.keys() for row in found.rows()] == [repeats > 1] * 2
    again = compare(search, ["hfta", "serial"], repeats, tmp_path, resume=True, unavailable={})
    assert again.same
    assert [(row["resumed"], "speedup" in row) for row in again.rows()] == [(True, False)] * 2
