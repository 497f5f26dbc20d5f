# SPDX-License-Identifier: MIT
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dnnsuite._runs.rates import read_steps
from dnnsuite._runs.spec import WorkerSpec
from dnnsuite.jobs import JobConfig


def work(folder: Path, job: str, task: str = "rate", **changes: Any) -> tuple[int, dict[str, Any], str]:
    """(exit status, result.json, standard error) of one worker started by hand."""
    spec = WorkerSpec(
        f"dnnsuite.workflow.tasks:{task}",
        str(folder),
        job,
        changes.pop("config", JobConfig(B=2, batch_size=4)).to_dict(),
        {"epochs": 2, "iters_per_epoch": 3, "steps": 2},
        ("toy_jobs",),
        memory_limit_bytes=1 << 30,
    )
    argv = [sys.executable, "-m", "dnnsuite._runs.worker", str(spec.write())]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    result = folder / "result.json"
    return done.returncode, json.loads(result.read_text()) if result.exists() else {}, done.stderr


def test_run_writes_samples_and_timing(toys: None, tmp_path: Path) -> None:
    status, result, stderr = work(tmp_path, "toy")
    assert (status, stderr) == (0, "")
    assert result["status"] == "ok"
    assert result["items_per_step"] == 8
    assert result["losses"] == [1 / 6, 1 / 6]
    assert result["asynchronous"] is False
    assert result["process"]["memory_limit_bytes"] == 1 << 30
    assert result["process"]["peak_rss_bytes"] > 1 << 20
    steps = read_steps(tmp_path / "samples.csv")
    assert steps.epochs.tolist() == [0, 0, 0, 1, 1, 1]
    assert steps.items.tolist() == [8] * 6
    assert (steps.stops_ns - steps.starts_ns >= 2_000_000).all()  # the toy's nap
    assert (steps.starts_ns[1:] >= steps.stops_ns[:-1]).all()
    assert len((tmp_path / "timing.csv").read_text().splitlines()) == 3


def test_a_dry_run_leaves_no_samples(toys: None, tmp_path: Path) -> None:
    status, result, _ = work(tmp_path, "toy", "dry_run")
    assert (status, result["status"]) == (0, "ok")
    assert not (tmp_path / "samples.csv").exists()


def test_equality_is_the_jobs_answer(toys: None, tmp_path: Path) -> None:
    status, result, _ = work(tmp_path, "toy-unequal", "equality")
    assert status == 0
    assert result["equality"]["passed"] is False
    assert result["equality"]["steps"] == 2


@pytest.mark.parametrize(
    ("job", "failure", "message"),
    [
        ("toy-nan", "nan", "loss of model 1 is nan after epoch 1"),
        ("toy-crash", "crash", "no second step"),
        ("no-such", "refused", "no job 'no-such'"),
    ],
)
def test_failures_are_told(job: str, failure: str, message: str, toys: None, tmp_path: Path) -> None:
    status, result, stderr = work(tmp_path, job)
    assert status == 1
    assert (result["status"], result["failure"]) == ("failed", failure)
    assert message in result["message"]
    assert "Traceback" in stderr


def test_memory_ends_at_the_limit(toys: None, tmp_path: Path) -> None:
    status, result, _ = work(tmp_path, "toy-hungry", config=JobConfig(B=3))
    assert (status, result["failure"]) == (1, "oom")
