# SPDX-License-Identifier: MIT
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from children import children
from dnnsuite._files import OutputError
from dnnsuite.jobs import JobConfig
from dnnsuite.workflow import metrics
from dnnsuite.workflow.processes import Outcome, run_group

RunGroup = Callable[..., Outcome]


@pytest.fixture
def group(toys: None, tmp_path: Path) -> RunGroup:
    """Runs n workers of a job, each in tmp_path/<i>."""

    def run(job: str, n: int, timeout_s: float = 60.0, **changes: Any) -> Outcome:
        specs = []
        for i in range(n):
            (tmp_path / str(i)).mkdir()
            specs.append({
                "kind": "run", "job": job, "plugins": ["toy_jobs"], "sys_path": [], "epochs": 2, "iters_per_epoch": 3,
                "steps": 2, "config": JobConfig(batch_size=4).to_dict(), "memory_limit_bytes": 1 << 30,
                "cuda_memory_fraction": None, "directory": str(tmp_path / str(i)), **changes,
            })  # fmt: skip
        return run_group(
            specs, [{"TOY_MARKER": str(tmp_path / f"{i}" / "marker")} for i in range(n)], timeout_s
        )

    return run


def test_replicas_start_together(group: RunGroup, tmp_path: Path) -> None:
    outcome = group("toy", 3)
    assert outcome.ok
    assert [result["status"] for result in outcome.results] == ["ok"] * 3
    all_steps = [metrics.read_steps(tmp_path / str(i) / "samples.csv") for i in range(3)]
    ready = min(steps.starts_ns[0] for steps in all_steps)
    assert all(steps.stops_ns[-1] > ready for steps in all_steps)
    assert max(s.starts_ns[0] for s in all_steps) < min(s.stops_ns[-1] for s in all_steps)
    assert children() == []


def test_one_that_fails_ends_all(group: RunGroup) -> None:
    outcome = group("toy-crash", 2)
    assert outcome.failure == "crash"
    assert "replica" in outcome.message
    assert "no second step" in outcome.message
    assert children() == []


def test_a_timeout_ends_all(group: RunGroup) -> None:
    outcome = group("toy-slow", 2, timeout_s=1.5, iters_per_epoch=1000)
    assert outcome.failure == "timeout"
    assert outcome.seconds < 20
    assert children() == []


def test_a_killed_replica_is_the_cause(group: RunGroup, tmp_path: Path) -> None:
    def kill_second() -> None:
        marker = tmp_path / "1" / "marker"
        while not (marker.exists() and marker.read_text()):
            time.sleep(0.02)
        os.kill(int(marker.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill_second)
    killer.start()
    outcome = group("toy-slow", 2, iters_per_epoch=1000)
    killer.join()
    assert outcome.failure == "killed"
    assert outcome.message.startswith("replica 1: the worker was ended by SIGKILL")
    assert children() == []


def test_an_unwritable_directory_is_raised(group: RunGroup, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        group("toy", 1, directory=str(tmp_path / "file"))
