# SPDX-License-Identifier: MIT
"""The task of one worker, started by hand; what suites do with many is tests/suites/test_run.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dnnsuite import timing
from dnnsuite._runs.spec import WorkerSpec
from dnnsuite.jobs import JobConfig


def work(folder: Path, job: str) -> tuple[int, dict, str]:
    """(exit status, result.json, standard error)."""
    details = {
        "name": job,
        "preset": "",
        "repeat": 4,
        "number": 2,
        "arguments": {"batch_size": 4, "number": 2},
        "device_uuids": [],
        "about": {"hostname": "h"},
        "conditions": {"preset": "", "changed": ""},
        "launched_ns": timing.now_ns(),
    }
    config = JobConfig(batch_size=4, threads=1).to_dict()
    spec = WorkerSpec("dnnsuite.suites.tasks:measure", str(folder), job, config, details, ("suite_toys",))
    argv = [sys.executable, "-m", "dnnsuite._runs.worker", str(spec.write())]
    environment = {**os.environ, "JOB_ID": "0"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment)
    result = folder / "result.json"
    return done.returncode, json.loads(result.read_text()) if result.exists() else {}, done.stderr


def test_it_measures_and_writes_its_files(toys: None, tmp_path: Path) -> None:
    status, result, stderr = work(tmp_path, "toy-nap")
    assert (status, stderr, result["status"]) == (0, "", "ok")
    assert (result["unit"], result["items_per_batch"], result["metrics"]) == ("naps", 4, {"steps": 8.0})
    assert result["window_s"] >= 8 * 0.002
    assert result["losses"] == {"first": 1.0, "last": 0.125}
    (report,) = json.loads((tmp_path / "report.json").read_text())
    assert report["train_item"]["avg"] == pytest.approx(2 * 4 / report["train"]["avg"])  # in naps
    assert len((tmp_path / "samples.csv").read_text().splitlines()) == 5


def test_a_job_that_is_not_there(toys: None, tmp_path: Path) -> None:
    status, result, stderr = work(tmp_path, "no-such")
    assert (status, result["failure"]) == (1, "refused")
    assert "no job 'no-such'" in result["message"]
    assert "Traceback" in stderr
