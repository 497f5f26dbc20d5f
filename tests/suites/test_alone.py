# SPDX-License-Identifier: MIT
"""One copy in the share that it has among several, against the several: what sharing costs."""

from dnnsuite import report


def test_one_copy_alone_and_two_together(run_toy, tmp_path):
    asked = {"copies": "2", "repeat": 3}
    several = run_toy("toy-nap", tmp_path / "several", **asked)
    alone = run_toy("toy-nap", tmp_path / "alone", alone=True, **asked)
    assert (len(several.runs), len(alone.runs)) == (6, 3)
    assert {run.copies for run in alone.runs} == {1}
    assert alone.state["plan"] == several.state["plan"]  # the same share
    table = report.make([several.root], alone=[alone.root], jobs=1).interference
    assert list(table.index) == ["toy-nap"]
    assert table.loc["toy-nap", "copies"] == 2
    assert table.loc["toy-nap", "low"] < table.loc["toy-nap", "slowdown"] < table.loc["toy-nap", "high"]
