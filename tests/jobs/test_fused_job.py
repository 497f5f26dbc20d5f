# SPDX-License-Identifier: MIT
from dnnsuite import jobs


def test_every_fused_job_has_the_presets_of_a_workflow():
    assert "bert" in jobs.names(jobs.FusedJob)
    for name in jobs.names(jobs.FusedJob):
        job = jobs.get(name, jobs.FusedJob)
        assert job.default_precisions("cpu") == ["fp32"]
        if issubclass(job, jobs.DeclaredJob):
            assert set(job.precisions("cpu")) >= {"fp32", "bf16", "fp16"}
            assert job.precisions("cuda")[:2] == job.default_precisions("cuda") == ["fp32", "amp"]
        for preset in ("quick", "default", "paper"):
            assert {"epochs", "iters_per_epoch", "repeats"} <= job.preset(preset, "cpu").keys()
