# SPDX-License-Identifier: MIT
"""Examples of models, operators and commits run as they are. That of throughput.csv: tests/cli/test_throughput.py."""

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_two_commits_are_compared(tmp_path):
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet")
    job = (EXAMPLES / "spirals.py").read_text()
    for text in (job, job.replace("torch.nn.Tanh()", "torch.nn.ReLU()")):
        (repository / "spirals.py").write_text(text)
        git(repository, "add", "spirals.py")
        git(repository, "commit", "--quiet", "--message", "a job")
    places = [str(Path(sys.executable).parent), os.environ["PATH"]]
    sizes = ["--epochs", "2", "--iters-per-epoch", "3", "--device", "cpu", "--threads", "1"]
    done = subprocess.run(
        [str(EXAMPLES / "compare_commits.sh"), "HEAD~1", "HEAD", "spirals.py", *sizes, "--precisions", "fp32"],
        cwd=repository,
        env={**os.environ, "PATH": os.pathsep.join(places), "TURNS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "spirals" in done.stdout
    assert "inconclusive" in done.stdout  # one run of a side is never a verdict
    worktrees = subprocess.run(["git", "worktree", "list"], cwd=repository, capture_output=True, text=True)
    assert len(worktrees.stdout.splitlines()) == 1


def test_examples_are_short():
    for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.sh")]:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60, path.name
