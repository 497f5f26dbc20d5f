# SPDX-License-Identifier: MIT
"""Operators, launches and bytes of a step on a GPU, counted on a CPU that stands in for one."""

import re
import sys
from pathlib import Path

import counts
import pandas
import pytest

FUSED = Path(__file__).parents[2] / "cpp/fused"


def test_a_small_step_is_few_launches():
    row = counts.counted("mlp_s", 8)
    assert row["operators"] <= 26  # three layers, a loss, one optimizer
    assert row["operators"] <= row["launches"] <= row["operators"] + 2
    assert 5 < row["MB"] < 20


def test_an_lstm_is_two_kernels_for_each_of_its_steps_each_way():
    assert counts.counted("lstm", 2)["operators"] < 450  # 35 steps of two layers


def test_the_number_of_models_does_not_count():
    few, many = (counts.counted("mlp_s", B) for B in (2, 8))
    assert few["operators"] == many["operators"]
    assert few["MB"] < many["MB"]


def test_operators_with_several_kernels_are_those_of_the_library():
    known = set(re.findall(r'm\.def\(\s*"(\w+)\(', (FUSED / "schema.cpp").read_text()))
    assert {name.removeprefix("dnnsuite::") for name in counts.LAUNCHES if "dnnsuite" in name} <= known


def test_a_table_has_what_was_before_and_files_are_whole(tmp_path, monkeypatch, capsys):
    before = tmp_path / "before.csv"
    before.write_text("workload,B,operators,launches,MB\nmlp_s,2,99,100,7.5\n")
    monkeypatch.setattr(
        sys, "argv", ["counts.py", "mlp_s", "--B", "2", "--before", str(before), "--out", str(tmp_path / "out")]
    )
    counts.main()
    assert "mlp_s: " in capsys.readouterr().out
    assert "(99)" in (tmp_path / "out/gpu-counts.md").read_text()
    assert list(pandas.read_csv(tmp_path / "out/gpu-counts.csv")["B"]) == [2]


def test_an_unknown_workload_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["counts.py", "lstmm"])
    with pytest.raises(SystemExit):
        counts.main()
    assert "no workload lstmm; there are mlp_s" in capsys.readouterr().err


def test_operators_that_write_into_arrays_of_the_caller_have_their_launches():
    """One that takes the place of another is easily forgotten: these are the norm's."""
    running = {name for name in counts.LAUNCHES if re.fullmatch(r"dnnsuite::batch_norm_act_\w+_", name)}
    schema = (FUSED / "schema.cpp").read_text()
    assert running == {f"dnnsuite::{name}" for name in re.findall(r"(batch_norm_act_\w+_)\(", schema)}
