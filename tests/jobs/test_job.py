# SPDX-License-Identifier: MIT
from dnnsuite import jobs


def test_every_job_has_what_a_workflow_asks_for():
    assert "bert" in jobs.names(jobs.Job)
    for name in jobs.names(jobs.Job):
        job = jobs.get(name, jobs.Job)
        assert job.precisions("cpu") == ["fp32"]
        for preset in ("quick", "paper"):
            assert {"epochs", "iters_per_epoch", "repeats"} <= job.preset(preset, "cpu").keys()
