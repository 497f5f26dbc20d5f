# SPDX-License-Identifier: MIT
"""The benchmark of rivals: the same searches, a row of the table."""

import pytest
import sweep_rivals
import torch

from dnnsuite.tuning import hyperband_rungs

joblib = pytest.importorskip("joblib")


def test_the_same_trials_go_on():
    seen = []

    def train(members, until):
        seen.append((list(members), until))
        return {trial: abs(trial - 4.1) for trial in members}

    assert sweep_rivals.halved([[(9, 1), (3, 3), (1, 9)], [(2, 9)]], train) == 4
    assert seen == [(list(range(9)), 1), ([4, 5, 3], 3), ([4], 9), ([9, 10], 9)]
    assert sweep_rivals.model_epochs(hyperband_rungs(81)) == 1581


def test_a_row_of_the_table(monkeypatch):
    for package in ("sklearn", "optuna"):
        pytest.importorskip(package)
    before = torch.get_num_threads()
    monkeypatch.setattr(sweep_rivals, "TRIALS", 2)
    monkeypatch.setattr(sweep_rivals, "EPOCHS", 1)
    seconds = sweep_rivals.measure("mlp", "random", 1, joblib.Parallel(n_jobs=1), lambda text: None)
    torch.set_num_threads(before)
    (row,) = sweep_rivals.report("mlp", "random", seconds)
    head, rule = sweep_rivals.header()
    assert head.count("|") == rule.count("|") == row.count("|")
    assert all(values[0] > 0 for values in seconds.values())
    assert row.split("|")[-2].strip() in seconds
