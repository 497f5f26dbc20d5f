# SPDX-License-Identifier: MIT
import subprocess
import sys

import pytest

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument


def test_config_survives_a_record():
    config = jobs.JobConfig(B=2, hyper={"lr": [0.1, 0.2]}, options={"nlayers": 2})
    assert jobs.JobConfig.from_dict(config.to_dict()) == config


def test_config_refuses_unknown_settings():
    with pytest.raises(
        InvalidArgument, match=r"no setting 'bach_size' .did you mean 'batch_size'..; it has B, batch_size"
    ):
        jobs.JobConfig.from_dict({"bach_size": 3})


def test_every_workload_describes_itself():
    for name in jobs.names():
        workload = jobs.get(name)
        assert workload.name == name
        assert workload.description
        assert workload.unit
        assert "fp32" in workload.precisions("cpu")


def test_every_job_that_is_swept_has_the_presets_of_a_workflow():
    assert "bert" in jobs.names(swept=True)
    for name in jobs.names(swept=True):
        job = jobs.get(name, swept=True)
        if not job.__module__.startswith("dnnsuite."):
            continue  # another test's
        assert job.default_precisions("cpu") == ["fp32"]
        if issubclass(job, jobs.DeclaredJob):
            half = set(job.workload.half)
            assert set(job.precisions("cpu")) == {"fp32", "fp64"} | half
            assert set(job.default_precisions("cuda")) == ({"fp32", "amp"} if half else {"fp32"})
        for preset in ("quick", "default", "paper"):
            assert {"epochs", "iters_per_epoch", "repeats"} <= job.preset(preset, "cpu").keys()


@pytest.mark.parametrize("name", sorted(set(jobs.names()) - set(jobs.names(swept=True))))
def test_a_job_that_is_not_swept_says_why_and_makes_no_array(name):
    why = jobs.get(name).alone
    with pytest.raises(InvalidArgument, match=f"job {name} {why}; available: .*bert"):
        jobs.get(name, swept=True)
    with pytest.raises(InvalidArgument, match=f"job {name} {why}: B must be 0, got 2"):
        jobs.get(name)(jobs.JobConfig(B=2))


def test_an_unknown_job_is_answered_with_the_known_ones():
    with pytest.raises(InvalidArgument, match=r"no job 'brt' \(did you mean 'bert'\?\); available: .*bert"):
        jobs.get("brt")


def test_a_name_is_given_once():
    with pytest.raises(InvalidArgument, match="a job 'bert' of dnnsuite's already"):

        @jobs.register("bert")
        class Other(jobs.Job):
            pass


def test_a_name_of_ours_is_taken_before_it_was_used():
    code = (
        "from dnnsuite import jobs\n"
        "class Mine(jobs.Job): ...\n"
        "try: jobs.register('atari')(Mine)\n"
        "except ValueError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "there is a job 'atari' of dnnsuite's already: choose another name\n"
