# SPDX-License-Identifier: MIT
"""Windows for a given start and number, and a job under the profiler."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import jobs
from dnnsuite._runs.rates import read_steps
from dnnsuite._runs.spec import WorkerSpec
from dnnsuite._runs.worker import Siblings
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiling.job import observe, rate, windows_of


@given(start=st.integers(0, 40), count=st.integers(1, 40))
def test_exactly_what_was_asked_is_kept(start, count):
    schedule, steps = windows_of(start, count)
    phases = [schedule(step) for step in range(steps)]
    assert sum(phase.kept for phase in phases) == count
    assert next(step for step, phase in enumerate(phases) if phase.kept) == start == schedule.first_active
    assert not phases[-1].on  # quiet steps follow the last window


@pytest.mark.parametrize(("start", "count"), [(-1, 3), (3, 0)])
def test_what_means_nothing_is_refused(start, count):
    with pytest.raises(InvalidArgument):
        windows_of(start, count)


def test_a_job_is_observed(tmp_path):
    details = {"metrics": "timeline", "start_iteration": 2, "profile_iterations": 4}
    config = jobs.JobConfig(batch_size=8)
    spec = WorkerSpec("dnnsuite.profiling.job:observe", str(tmp_path), "toy_reg", config.to_dict(), details)
    found = observe(spec, Siblings(None))["profile"]
    assert found["steps"] == 4
    assert found["about"]["items_per_step"] == 8
    assert "data wait" in {row["class"] for row in found["breakdown"]}
    assert json.loads((tmp_path / "profile.json").read_text())["about"]["job"] == "toy_reg"
    assert (tmp_path / "progress.txt").read_text() == "13 13"


calls: list[str] = []


@jobs.register("counted")
class Counted(jobs.Job):
    """Counts its steps and the waits for the device; the seventh step's loss is not finite."""

    description, unit = "counts its calls", "calls"

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        return ["fp32"]

    def setup(self) -> None:
        calls.append("setup")

    def step(self) -> None:
        calls.append("step")

    def synchronize(self) -> None:
        calls.append("wait")

    def losses(self) -> list[float]:
        return [math.nan if calls.count("step") == 7 else 0.5]

    def provenance(self) -> dict[str, object]:
        return {"data": "none"}

    def close(self) -> None:
        calls.append("close")


def rated(folder: Path, *blocks: int) -> dict[str, object]:
    """Result of a worker that was started by hand, with a block of warm-up and others of so many steps."""
    calls.clear()
    config = jobs.JobConfig(batch_size=4).to_dict()
    alone = [{"do": "block", "epoch": i, "steps": steps} for i, steps in enumerate(blocks)]
    return rate(WorkerSpec("", str(folder), "counted", config, {"warm_up": 1, "alone": alone}), Siblings(None))


def test_so_many_iterations_and_no_more(tmp_path: Path) -> None:
    result = rated(tmp_path, 2, 3, 1)
    assert calls == ["setup", *["step"] * 2, "wait", *["step"] * 3, "wait", "step", "wait", "close"]
    assert (result["items_per_step"], result["unit"], result["finite"]) == (4, "calls", True)
    steps = read_steps(tmp_path / "samples.csv")
    assert steps.items.tolist() == [4] * 6
    assert steps.epochs.tolist() == [0, 0, 1, 1, 1, 2]
    lines = (tmp_path / "samples.csv").read_text().splitlines()[1:]
    assert [line.split(",")[5] for line in lines] == ["warmup"] * 2 + ["train"] * 4


def test_a_loss_that_is_not_finite_is_told(tmp_path: Path) -> None:
    assert rated(tmp_path, 3, 4)["finite"] is False


def test_a_job_that_fails_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Counted) -> None:
        raise MemoryError

    monkeypatch.setattr(Counted, "step", fails)
    with pytest.raises(MemoryError):
        rated(tmp_path, 1)
    assert calls[-1] == "close"
