# SPDX-License-Identifier: MIT
"""One worker, started by hand; what suites do with many is tests/suites/test_run.py."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dnnsuite import timing
from dnnsuite.jobs import JobConfig


def spec_of(folder: Path, job: str, **changes: Any) -> dict[str, Any]:
    return {
        "job": job, "name": job, "plugins": ["suite_toys"], "sys_path": [], "repeat": 4, "number": 2,
        "config": JobConfig(batch_size=4, threads=1).to_dict(), "arguments": {"batch_size": 4, "number": 2},
        "processes": 1, "directory": str(folder), "device_uuids": [], "memory_limit_bytes": None,
        "about": {"hostname": "h"}, "launched_ns": timing.now_ns(), "parent_pid": os.getpid(), **changes,
    }  # fmt: skip


def work(folder: Path, job: str, stdin: Any = subprocess.DEVNULL, **changes: Any) -> tuple[int, dict, str]:
    """(exit status, result.json, standard error)."""
    (folder / "spec.json").write_text(json.dumps(spec_of(folder, job, **changes)))
    argv = [sys.executable, "-m", "dnnsuite.suites.worker", str(folder / "spec.json")]
    environment = {**os.environ, "JOB_ID": "0"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=stdin, env=environment)
    result = folder / "result.json"
    return done.returncode, json.loads(result.read_text()) if result.exists() else {}, done.stderr


def test_it_tells_when_it_is_set_up_and_waits(toys: None, tmp_path: Path) -> None:
    mine, its = socket.socketpair()
    with mine, its:
        mine.sendall(b"g")  # the others are ready already
        status, result, stderr = work(tmp_path, "toy-nap", stdin=its)
        assert mine.recv(2) == b"r"
    assert (status, stderr, result["status"]) == (0, "", "ok")
    assert (result["unit"], result["items_per_batch"], result["metrics"]) == ("naps", 4, {"steps": 8.0})
    assert result["window_s"] >= 8 * 0.002
    assert result["losses"] == {"first": 1.0, "last": 0.125}
    (report,) = json.loads((tmp_path / "report.json").read_text())
    assert report["train_item"]["avg"] == pytest.approx(2 * 2 / report["train"]["avg"])  # in pairs of naps
    assert len((tmp_path / "samples.csv").read_text().splitlines()) == 5


def test_a_runner_that_ends_ends_it(toys: None, tmp_path: Path) -> None:
    mine, its = socket.socketpair()
    mine.close()
    with its:
        status, result, _ = work(tmp_path, "toy-nap", stdin=its)
    assert (status, result["status"]) == (1, "failed")


def test_a_job_that_is_not_there(toys: None, tmp_path: Path) -> None:
    status, result, stderr = work(tmp_path, "no-such")
    assert (status, result["failure"]) == (1, "crash")
    assert "no job 'no-such'" in result["message"]
    assert "Traceback" in stderr


def test_a_worker_whose_parent_is_gone_does_nothing(toys: None, tmp_path: Path) -> None:
    status, result, stderr = work(tmp_path, "toy-nap", parent_pid=1 << 22)
    assert (status != 0, result) == (True, {})
    assert "is gone" in stderr
