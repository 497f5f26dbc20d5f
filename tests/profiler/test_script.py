# SPDX-License-Identifier: MIT
"""The profile inside an observed script: it never breaks the script."""

import json
import sys
import types

import pandas
import pytest
import torch

from dnnsuite.profiler import script

SETTINGS = {
    "schedule": {"skip_first": 1, "wait": 0, "warmup": 0, "active": 2, "repeat": 1},
    "steps": 4,
    "metrics": "timeline",
    "stop": False,
}


@pytest.fixture
def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)


def test_without_the_variable_nothing_is_watched(monkeypatch):
    monkeypatch.delenv(script.VARIABLE, raising=False)
    before = list(sys.meta_path)
    script.install()
    assert sys.meta_path == before


def test_a_damaged_variable_is_said(monkeypatch, capsys):
    monkeypatch.setenv(script.VARIABLE, "{")
    script.install()
    assert "this process is not observed" in capsys.readouterr().err


def test_a_module_is_watched_until_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "watched_module.py").write_text("value = 3")
    monkeypatch.syspath_prepend(str(tmp_path))
    called, finders = [], list(sys.meta_path)
    script.when_imported("watched_module", lambda: called.append(sys.modules["watched_module"].value))
    assert called == []
    import watched_module

    assert called == [3]
    assert isinstance(watched_module, types.ModuleType)
    assert sys.meta_path == finders
    script.when_imported("watched_module", lambda: called.append(4))
    assert called == [3, 4]


def test_steps_are_counted_and_the_profile_ends_by_itself(tmp_path, optimizer, capsys):
    watched = script.Script({**SETTINGS, "out": str(tmp_path / "out")})
    for _ in range(8):
        watched.ends.optimizer_stepped(optimizer)
    assert "2 steps were observed" in capsys.readouterr().err
    assert (tmp_path / "out" / "profile.json").is_file()
    steps = pandas.read_csv(tmp_path / "out" / "steps.csv")
    # iteration 0 had ended before the profile could begin: numbers are those of the script
    assert steps["step"].tolist() == [1, 2, 3]
    assert steps["phase"].tolist() == ["active", "active", "off"]
    from dnnsuite import profiler

    with profiler.profile():  # the process is free again
        pass


def test_a_profile_that_fails_is_said_and_the_script_goes_on(tmp_path, optimizer, capsys):
    (tmp_path / "out").write_text("a file is in the way")
    watched = script.Script({**SETTINGS, "out": str(tmp_path / "out")})
    for _ in range(8):
        watched.ends.optimizer_stepped(optimizer)
    assert "the profile failed; the script continues" in capsys.readouterr().err


def test_steps_of_a_kind_that_says_more_take_over(tmp_path, optimizer, capsys):
    """Eleven calls of an evaluation, then a training: the page is of the training."""
    watched = script.Script({**SETTINGS, "out": str(tmp_path / "out")})
    net = torch.nn.Linear(2, 2)
    for _ in range(9):
        watched.ends.forward_ended(net, torch.ones(1))
    for _ in range(5):
        watched.ends.optimizer_stepped(optimizer)
    record = json.loads((tmp_path / "out" / "profile.json").read_text())
    assert record["about"]["step_ends"] == "optimizer"
    assert pandas.read_csv(tmp_path / "out" / "steps.csv")["step"].tolist() == [1, 2, 3]
    assert json.loads((tmp_path / "out" / "status.json").read_text())["later"] == ""


def test_steps_that_came_when_all_had_been_seen_are_said(tmp_path, optimizer):
    watched = script.Script({**SETTINGS, "out": str(tmp_path / "out")})
    net = torch.nn.Linear(2, 2)
    for _ in range(20):
        watched.ends.forward_ended(net, torch.ones(1))
    watched.ends.optimizer_stepped(optimizer)
    assert json.loads((tmp_path / "out" / "status.json").read_text())["later"] == "optimizer"
    assert "a step is one call of Linear" in (tmp_path / "out" / "summary.txt").read_text()


def test_processes_have_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert script.claim_directory(tmp_path / "out") == tmp_path / "out"
    assert script.claim_directory(tmp_path / "out").name.startswith("process-")
    monkeypatch.setenv("RANK", "3")
    assert script.claim_directory(tmp_path / "out").name == "rank-3"
