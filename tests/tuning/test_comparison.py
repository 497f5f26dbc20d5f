# SPDX-License-Identifier: MIT
"""A search in several modes: what may be said of their times."""

import os

import pandas as pd
import pytest
import torch

from dnnsuite.tuning.comparison import compare
from dying_writes import in_child
from small_sweep import run

KILLS = int(os.environ.get("DNNSUITE_KILLS", "2"))


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


def test_a_kill_at_a_write_leaves_what_goes_on_to_the_same_comparison(tmp_path):
    torch.set_num_threads(1)  # a fork has no threads of torch's

    def tune(out):
        compare(search, ["hfta", "serial"], 1, out, resume=True, unavailable={}).save(out)

    def told(out):
        rows = pd.read_csv(out / "comparison.csv")[["mode", "trials", "epochs", "metric", "best", "best_trial"]]
        names = {path.relative_to(out) for path in out.rglob("*") if path.is_file()}
        return rows.to_dict("records"), names

    tune(tmp_path / "here")  # so that children need not import what it does
    writes = in_child(lambda: tune(tmp_path / "whole"))
    whole = told(tmp_path / "whole")
    for number in range(1, writes + 1, max(1, writes // KILLS)):
        out = tmp_path / str(number)
        assert in_child(lambda out=out, number=number: tune(out), number) is None
        in_child(lambda out=out: tune(out))
        assert told(out) == whole, number


@pytest.mark.parametrize("exact", [True, False])
def test_modes_that_differ_fail_where_they_compute_the_same_bits(tmp_path, exact):
    """On a GPU they agree up to rounding."""

    def other(mode, repeat, folder, again):
        return run(folder, "random", mode=mode, seed=0 if mode == "hfta" else 1, epochs=1, resume=again)

    found = compare(other, ["hfta", "serial"], 1, tmp_path, resume=False, unavailable={}, exact=exact)
    assert not found.same
    assert found.failed is exact
    assert found.verdict.startswith("the modes found different best configurations (hfta ")
    assert ("rounding" in found.verdict) is not exact
    assert found.to_dict()["verdict"] == found.verdict
