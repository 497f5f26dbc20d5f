# SPDX-License-Identifier: MIT
import math
from pathlib import Path

import pytest

from dnnsuite import jobs
from dnnsuite._runs.samples import read_steps
from dnnsuite._runs.spec import WorkerSpec
from dnnsuite._runs.worker import Siblings
from dnnsuite.profiling.throughput_task import rate

calls: list[str] = []


@jobs.register("counted")
class Counted(jobs.Workload):
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


def rated(folder: Path, **order: object) -> dict[str, object]:
    calls.clear()
    config = jobs.JobConfig(batch_size=4).to_dict()
    details = {"stop_iteration": None, "start_iteration": None, "target": 0.2, "budget_s": 0.3, **order}
    return rate(WorkerSpec("", str(folder), "counted", config, details), Siblings(None))


def test_so_many_iterations_and_no_more(tmp_path: Path) -> None:
    result = rated(tmp_path, stop_iteration=6, start_iteration=2)
    assert calls == ["setup", "wait", *["step", "wait"] * 6, "close"]
    assert (result["items_per_step"], result["unit"], result["finite"]) == (4, "calls", True)
    assert read_steps(tmp_path / "samples.csv").items.tolist() == [4] * 6
    lines = (tmp_path / "samples.csv").read_text().splitlines()[1:]
    assert [line.split(",")[5] for line in lines] == ["warmup"] * 2 + ["train"] * 4


def test_observations_are_end_to_end(tmp_path: Path) -> None:
    rated(tmp_path, stop_iteration=5, start_iteration=0)
    steps = read_steps(tmp_path / "samples.csv")
    assert steps.stops_ns[:-1].tolist() == steps.starts_ns[1:].tolist()


def test_a_loss_that_is_not_finite_is_told(tmp_path: Path) -> None:
    assert rated(tmp_path, stop_iteration=7, start_iteration=0)["finite"] is False


def test_it_ends_when_the_rate_is_known_or_the_budget_spent(tmp_path: Path) -> None:
    result = rated(tmp_path)
    assert result["status_of_rate"] in ("converged", "noisy", "timeout")
    assert len(read_steps(tmp_path / "samples.csv")) > 2
    assert calls.count("step") > calls.count("wait")  # short steps are timed together


def test_a_job_that_fails_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(self: Counted) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Counted, "step", step)
    with pytest.raises(MemoryError):
        rated(tmp_path, stop_iteration=1, start_iteration=0)
    assert calls[-1] == "close"
