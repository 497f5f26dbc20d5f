# SPDX-License-Identifier: MIT
"""`dnnsuite tune`: a search in several modes, resumed, and refused."""

import json

import pandas as pd
import pytest
import torch

from dnnsuite.cli.app import main

SMALL = [
    "blobs", "--plugin", "tiny_workloads", "--iters-per-epoch", "2", "--threads", "1", "--max-iters", "3", "--quiet",
    "--metric", "loss",
]  # fmt: skip


def run(*arguments):
    """Exit status of the command."""
    with pytest.raises(SystemExit) as ended:
        main(["tune", *arguments])
    return ended.value.code


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"lr": {"loguniform": [1e-4, 1e-2]}, "gamma": {"uniform": [0.5, 0.9]}}))
    return str(path)


def test_modes_find_the_same_best(tmp_path, space, capsys):
    out = tmp_path / "out"
    assert run(*SMALL, "--modes", "hfta,serial,concurrent,mps", "--space", space, "--out", str(out), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["same"]
    assert [row["mode"] for row in found["rows"]] == ["hfta", "serial", "concurrent"]
    assert "NVIDIA GPU" in found["unavailable"]["mps"]
    assert len({row["best"] for row in found["rows"]}) == 1
    assert found["rows"][0]["epochs"] == 11  # 3 x 1, 1 x 2 more, and 2 x 3
    for mode in ("hfta", "serial", "concurrent"):
        history = pd.read_csv(out / "run0" / mode / "history.csv")
        assert {"id", "early_stop", "runtime", "iterations", "params.lr", "result.loss"} <= set(history.columns)
        assert list(pd.read_csv(out / "run0" / mode / "trajectory.csv").columns) == ["timestamp", "loss"]
    assert (out / "trajectory.png").stat().st_size > 5000
    before = (out / "run0/hfta/epochs.csv").read_text()
    assert run(*SMALL, "--modes", "hfta", "--space", space, "--out", str(out), "--resume") == 0
    assert (out / "run0/hfta/epochs.csv").read_text() == before
    assert "is the best: loss" in capsys.readouterr().out
    assert run(*SMALL, "--modes", "hfta", "--space", space, "--out", str(out)) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--algorithm", "hyperbandd"], "did you mean 'hyperband'"),
        (["--modes", "hfat"], "did you mean 'hfta'"),
        (["--modes", "mig"], "mig: "),
        (["--option", "width"], "expected NAME=VALUE"),
        (["--resume"], "there is no"),
        (["--preset", "papper"], "did you mean 'paper'"),
        (["--max-iters", "0"], "--max-iters 0: must be at least 1"),
        (["--repeats", "0"], "--repeats 0"),
        (["--metric", "train_los"], "did you mean 'train_loss'"),
        (["--skip-last", "-1"], "skip_last is a whole number"),
    ],
)
def test_bad_options_are_one_sentence(tmp_path, space, capsys, arguments, message):
    assert run(*SMALL, "--space", space, "--out", str(tmp_path / "out"), *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_workers_of_a_cluster_share_a_search(tmp_path, space, capsys):
    pytest.importorskip("submitit")
    pytest.importorskip("optuna")
    out = tmp_path / "out"
    options = [*SMALL, "--space", space, "--cluster", "local", "--workers", "2"]
    assert run(*options, "--cluster-option", "timeout_min=5", "--out", str(out)) == 0
    said = capsys.readouterr().out
    assert "2 of 2 tasks to submit to local" in said
    assert "is the best: loss" in said
    assert str(out / "trajectory.png") in said
    assert run(*SMALL, "--modes", "hfta", "--space", space, "--out", str(tmp_path / "alone"), "--json") == 0
    (alone,) = json.loads(capsys.readouterr().out)["rows"]
    (shared,) = json.loads((out / "comparison.json").read_text())["rows"]
    assert (shared["best"], shared["best_trial"], shared["epochs"]) == (
        alone["best"], alone["best_trial"], alone["epochs"],
    )  # fmt: skip


def test_devices_share_a_search(tmp_path, space, capsys):
    pytest.importorskip("optuna")
    rows = []
    for name, devices in (("alone", []), ("devices", ["--devices", "cpu"])):
        out = str(tmp_path / name)
        assert run(*SMALL, "--modes", "hfta", "--space", space, "--out", out, "--json", *devices) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        rows.append((row["best"], row["best_trial"], row["epochs"]))
    assert rows[0] == rows[1]
    assert (tmp_path / "devices/run0/hfta/devices/cpu-0/result.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--share"], "name it with --out"),
        (["--devices", "all"], "shows no GPU"),
        (["--devices", "cpu", "--device", "cpu"], "give one of them"),
        (["--devices", "cpu", "--cluster", "local"], "--workers is their number"),
        (["--cluster", "pbs"], "accepted: slurm, local, debug"),
        (["--workers", "0"], "--workers 0"),
        (["--cluster", "local", "--cluster-option", "timeout"], "expected NAME=VALUE"),
    ],
)
def test_bad_options_of_clusters_are_one_sentence(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert run(*SMALL, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())
