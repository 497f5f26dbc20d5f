# SPDX-License-Identifier: MIT
"""Examples of models, operators and commits run as they are. That of throughput.csv: tests/cli/test_throughput.py."""

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import status
from dnnsuite._runs.record import Metric
from result_tables import a_record, write_record

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize(
    ("name", "needs", "words"),
    [
        ("torchvision_model", "torchvision", "MobileNetV3 with lr 0.1 is the best"),
        ("own_operator", "torch", "stacked is "),  # faster, unless the machine is busy
    ],
)
def test_an_example_runs(tmp_path, monkeypatch, capsys, name, needs, words):
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert words in capsys.readouterr().out


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_two_commits_are_compared(tmp_path, monkeypatch, capsys):
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet")
    job = (EXAMPLES / "spirals.py").read_text()
    for text in (job, job.replace("torch.nn.Tanh()", "torch.nn.ReLU()")):
        (repository / "spirals.py").write_text(text)
        git(repository, "add", "spirals.py")
        git(repository, "commit", "--quiet", "--message", "a job")
    # What it calls is run below, in this process: each call starts an interpreter otherwise, and one for its worker.
    (tmp_path / "dnnsuite").write_text('#!/bin/sh\ngrep -c Tanh spirals.py; echo "$@"\n')
    (tmp_path / "dnnsuite").chmod(0o755)
    sizes = ["--epochs", "2", "--iters-per-epoch", "3", "--device", "cpu", "--threads", "1"]
    done = subprocess.run(
        [str(EXAMPLES / "compare_commits.sh"), "HEAD~1", "HEAD", "spirals.py", *sizes, "--precisions", "fp32"],
        cwd=repository,
        env={**os.environ, "PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]]), "TURNS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.chdir(repository)
    *turns, _, compare = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in turns[::2]] == ["1", "0"] * 2  # the job of each commit, in turn
    for name, turn, words in zip(["base", "head"] * 2, "1122", turns[1::2], strict=True):
        assert Path(words[words.index("--out") + 1]).parts[-2:] == (name, turn)
        assert status(*words, "--dry-run") == 0
    for side in ("base", "head"):
        metric = Metric("throughput", 100.0, "points/s")
        write_record(tmp_path / side / "1", a_record(side, mode="serial", job="spirals", metrics=(metric,)))
    assert [Path(folder).name for folder in compare[1:3]] == ["base", "head"]
    capsys.readouterr()
    assert status("compare", str(tmp_path / "base"), str(tmp_path / "head"), *compare[3:]) == 3
    assert "inconclusive" in capsys.readouterr().out  # one run of a side is never a verdict
    worktrees = subprocess.run(["git", "worktree", "list"], cwd=repository, capture_output=True, text=True)
    assert len(worktrees.stdout.splitlines()) == 1


def test_examples_are_short():
    for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.sh")]:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60, path.name
