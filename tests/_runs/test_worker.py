# SPDX-License-Identifier: MIT
"""One worker, started by hand."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dnnsuite._runs.spec import WorkerSpec

SpecOf = Callable[..., WorkerSpec]


def work(spec: WorkerSpec, stdin: Any = subprocess.DEVNULL, **variables: str) -> tuple[int, dict[str, Any], str]:
    """(exit status, result.json, standard error)."""
    path = spec.write()
    done = subprocess.run(
        [sys.executable, "-m", "dnnsuite._runs.worker", str(path)],
        capture_output=True,
        text=True,
        check=False,
        stdin=stdin,
        env={**os.environ, **variables},
    )
    result = path.parent / "result.json"
    return done.returncode, json.loads(result.read_text()) if result.exists() else {}, done.stderr


def test_it_tells_when_it_is_set_up_and_waits(spec_of: SpecOf) -> None:
    mine, its = socket.socketpair()
    with mine, its:
        mine.sendall(b"g")  # the others are ready already
        status, result, stderr = work(spec_of("fine"), stdin=its)
        assert mine.recv(2) == b"r"
    assert (status, stderr, result["status"], result["failure"]) == (0, "", "ok", None)
    assert result["process"]["memory_limit_bytes"] == 1 << 30
    assert result["process"]["pid"] > 1


def test_a_group_that_is_gone_ends_it(spec_of: SpecOf) -> None:
    mine, its = socket.socketpair()
    mine.close()
    with its:
        status, result, _ = work(spec_of("fine"), stdin=its)
    assert (status, result["status"]) == (1, "failed")
    assert "the parent ended" in result["message"]


@pytest.mark.parametrize(
    ("task", "failure", "message"),
    [
        ("crashes", "crash", "no second step"),
        ("crashes_at_once", "unavailable", "it needs a harp; buy one"),
        ("no_such_task", "crash", "no_such_task"),
    ],
)
def test_failures_are_told(task: str, failure: str, message: str, spec_of: SpecOf) -> None:
    status, result, stderr = work(spec_of(task))
    assert (status, result["status"], result["failure"]) == (1, "failed", failure)
    assert message in result["message"]
    assert "Traceback" in stderr


def test_of_several_processes_only_the_leading_one_tells_that_all_went_well(spec_of: SpecOf) -> None:
    status, result, _ = work(spec_of("fine", "0"), RANK="1")
    assert (status, result) == (0, {})
    status, result, _ = work(spec_of("crashes", "1"), RANK="1")
    assert (status, result["failure"]) == (1, "crash")


def test_an_unwritable_directory_has_its_own_status(spec_of: SpecOf, tmp_path: Path) -> None:
    spec = spec_of("fine")
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({**json.loads(spec.write().read_text()), "directory": str(tmp_path / "absent")}))
    argv = [sys.executable, "-m", "dnnsuite._runs.worker", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 74
    assert "cannot write" in done.stderr.splitlines()[-1]


def test_a_worker_whose_parent_is_gone_does_nothing(spec_of: SpecOf) -> None:
    status, result, stderr = work(replace(spec_of("fine"), parent_pid=1 << 22))
    assert (status != 0, result) == (True, {})
    assert "is gone" in stderr
