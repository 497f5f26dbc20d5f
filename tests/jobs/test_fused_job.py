# SPDX-License-Identifier: MIT
from dnnsuite import jobs


def test_every_fused_job_has_the_presets_of_a_workflow():
    assert "bert" in jobs.names(swept=True)
    for name in jobs.names(swept=True):
        job = jobs.get(name, swept=True)
        assert job.default_precisions("cpu") == ["fp32"]
        if issubclass(job, jobs.DeclaredJob):
            half = {"bf16", "fp16"} if job.workload.half else set()
            assert set(job.precisions("cpu")) == {"fp32", "fp64"} | half
            assert set(job.default_precisions("cuda")) == ({"fp32", "amp"} if half else {"fp32"})
        for preset in ("quick", "default", "paper"):
            assert {"epochs", "iters_per_epoch", "repeats"} <= job.preset(preset, "cpu").keys()
