# SPDX-License-Identifier: MIT
"""A sweep on disk: what is kept, killed at any moment, continued, and refused."""

import multiprocessing
import os
import signal
import subprocess
import time

import pytest
import torch

from dnnsuite import results
from dnnsuite.errors import InvalidArgument
from small_sweep import ALGORITHMS, run, undisturbed


class Stop(Exception):
    """End of a sweep at a moment of the test's choice."""


class After:
    """A callback that ends the sweep after some epochs."""

    def __init__(self, epochs):
        self.left = epochs

    def __call__(self, event):
        self.left -= event.kind == "epoch"
        if self.left == 0:
            raise Stop


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_sweep_that_ended_early_goes_on_to_the_same_history(tmp_path, name):
    whole = undisturbed(name)
    ended = tmp_path / "ended"
    with pytest.raises(Stop):
        run(ended, name, [After(4)])
    with pytest.raises(Stop):
        run(ended, name, [After(2)], resume=True)
    sweep = run(ended, name, resume=True, width=2)
    assert sweep.history.equals(whole.history)
    assert sweep.table.drop(columns="seconds").equals(whole.table.drop(columns="seconds"))
    for key, value in whole.best_state_dict.items():
        assert torch.equal(value, sweep.best_state_dict[key])
    again = run(ended, name, resume=True)
    assert again.history.equals(whole.history)
    assert again.epochs == whole.epochs


def test_the_directory_is_one_that_results_load_reads(tmp_path):
    sweep = run(tmp_path / "out")
    table = results.load(tmp_path / "out")
    assert set(table["kind"]) == {"trial"}
    assert len(table) == len(sweep.table)
    assert table["value"].min() == sweep.best_value
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {
        "sweep.json",
        "best.pt",
        "trials.csv",
        "history.csv",
        "epochs.csv",
        "trajectory.csv",
        "runs",
    } <= names
    columns = (tmp_path / "out" / "history.csv").read_text().splitlines()[0].split(",")
    assert columns[:6] == ["id", "early_stop", "runtime", "iterations", "params.lr", "params.dropout"]


@pytest.mark.parametrize("change", [{"epochs": 9}, {"seed": 7}, {"metric": "acc"}, {"name": "random"}])
def test_a_directory_of_another_sweep_is_refused(tmp_path, change):
    run(tmp_path / "out", width=8)
    with pytest.raises(InvalidArgument, match="other settings"):
        run(tmp_path / "out", resume=True, **change)
    with pytest.raises(InvalidArgument, match="not empty"):
        run(tmp_path / "out")


def test_damaged_files_are_made_again(tmp_path):
    whole = undisturbed()
    with pytest.raises(Stop):
        run(tmp_path / "out", callbacks=[After(4)])
    records = sorted((tmp_path / "out" / "runs").glob("trial-*/run.json"))
    records[0].write_text("{")
    (tmp_path / "out" / "best.pt").write_bytes(b"nothing")
    assert run(tmp_path / "out", resume=True).history.equals(whole.history)


def test_killed_at_any_moment(tmp_path):
    whole = undisturbed()
    out = tmp_path / "out"
    process = multiprocessing.get_context("fork").Process(target=run, args=(out,))
    process.start()
    while process.is_alive() and len(list(out.glob("runs/trial-*/run.json"))) < 2:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert run(out, resume=True).history.equals(whole.history)


def dead_process() -> int:
    """Number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.mark.parametrize("name", ["hyperband", "pbt"])
def test_killed_between_a_state_and_the_record_that_tells_of_it(tmp_path, name):
    whole = undisturbed(name)
    out = tmp_path / "out"
    with pytest.raises(Stop):
        run(out, name, callbacks=[After(9)])
    for folder in out.glob("runs/trial-*"):
        states = {int(path.stem.split("-")[1]): path for path in folder.glob("state-*.pt")}
        last = max(states, default=0)
        if last:  # a state of a rung that no record has, and half of another
            (folder / f"state-{last + 1}.pt").write_bytes(states[last].read_bytes())
            (folder / f".tmp-{dead_process()}-state-{last}.pt").write_bytes(b"half of")
    sweep = run(out, name, resume=True)
    assert sweep.history.equals(whole.history)
    assert not [path.name for path in out.glob("runs/*/*") if path.name != "run.json"]
