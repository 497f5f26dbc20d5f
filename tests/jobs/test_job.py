# SPDX-License-Identifier: MIT
import pytest

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument


def test_config_survives_a_record():
    config = jobs.JobConfig(B=2, hyper={"lr": [0.1, 0.2]}, options={"nlayers": 2})
    assert jobs.JobConfig.from_dict(config.to_dict()) == config


def test_config_refuses_unknown_settings():
    with pytest.raises(InvalidArgument, match="no setting 'bach_size'; it has B, batch_size"):
        jobs.JobConfig.from_dict({"bach_size": 3})


def test_every_job_describes_itself():
    for name in jobs.names():
        job = jobs.get(name)
        assert job.name == name
        assert job.description
        assert job.unit
        assert job.precisions("cpu") == ["fp32"]
        for preset in ("quick", "paper"):
            assert {"epochs", "iters_per_epoch", "repeats"} <= job.preset(preset, "cpu").keys()


def test_an_unknown_job_is_answered_with_the_known_ones():
    with pytest.raises(InvalidArgument, match="no job 'brt'; there is bert"):
        jobs.get("brt")


def test_a_name_is_given_once():
    with pytest.raises(InvalidArgument, match="already BertJob"):

        @jobs.register("bert")
        class Other(jobs.Job):
            pass
