# SPDX-License-Identifier: MIT
"""Windows for a given start and number, and a job under the profiler."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import jobs
from dnnsuite._runs.spec import WorkerSpec
from dnnsuite._runs.worker import Siblings
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiling.job import observe, windows_of


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
