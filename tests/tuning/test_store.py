# SPDX-License-Identifier: MIT
"""A sweep on disk: what is kept, killed at any moment, continued, and refused."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import dnnsuite
from dnnsuite import results
from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning import ASHA, PBT, Hyperband, LogUniform, Random, Uniform

ALGORITHMS = {
    "random": lambda: Random(5),
    "hyperband": Hyperband,
    "asha": lambda: ASHA(6, parallel=3),
    "pbt": lambda: PBT(4),
}


def model(config):
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Dropout(config["dropout"]), torch.nn.Linear(6, 2)
    )


def run(out, name="hyperband", callbacks=(), **options):
    x = torch.randn(48, 4, generator=torch.Generator().manual_seed(5))
    y = (x[:, 0] * x[:, 1] > 0).long()
    space = {"lr": LogUniform(1e-3, 0.3), "dropout": Uniform(0.0, 0.5)}
    return dnnsuite.sweep(
        model, space, (x[:32], y[:32]), evaluate=(x[32:], y[32:]), batch_size=8, out=out, quiet=True,
        **{"epochs": 3, "algorithm": ALGORITHMS[name](), "width": 3, **options}, callbacks=callbacks,
    )  # fmt: skip


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
    whole = run(tmp_path / "whole", name)
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
    whole = run(tmp_path / "whole")
    with pytest.raises(Stop):
        run(tmp_path / "out", callbacks=[After(4)])
    records = sorted((tmp_path / "out" / "runs").glob("trial-*/run.json"))
    records[0].write_text("{")
    (tmp_path / "out" / "best.pt").write_bytes(b"nothing")
    assert run(tmp_path / "out", resume=True).history.equals(whole.history)


def test_killed_at_any_moment(tmp_path):
    whole = run(tmp_path / "whole")
    out = tmp_path / "out"
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"import torch; torch.set_num_threads(1); import test_store\n"
        f"test_store.run({str(out)!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "OMP_NUM_THREADS": "1"})
    while process.poll() is None and len(list(out.glob("runs/trial-*/run.json"))) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert run(out, resume=True).history.equals(whole.history)
