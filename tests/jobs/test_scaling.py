# SPDX-License-Identifier: MIT
import pytest
import torch

from children import children
from dnnsuite import jobs
from dnnsuite.data import import_torchvision
from dnnsuite.errors import InvalidArgument
from job_runs import losses, make

SMALL = {"network": "resnet18", "image_size": 32, "steps": 1, "threads": 1}


def test_two_devices():
    job = make("scaling", 2, devices=2, **SMALL)
    try:
        assert losses(job, 1)[0] < 1  # of ln 1000: one class is learnt while the speed is measured
        assert job.items_per_step == 4
        metrics = job.metrics()
        assert metrics["efficiency_1"] == 1
        assert metrics["efficiency"] == metrics["efficiency_2"] == metrics["speed_2"] / metrics["speed_1"] / 2
        assert job.provenance()["parameters"] == 11_689_512
        # Steps are not waited for one by one; their losses are there afterwards.
        job.step()
        first = job.last_loss
        job.step()
        assert first.isnan()
        job.synchronize()
        assert first.isfinite()
        assert job.last_loss.isfinite()
    finally:
        job.close()
        job.close()
    assert not children()


def test_one_device_and_the_same_seed():
    found = []
    for seed in (5, 5):
        job = make("scaling", 2, devices=1, seed=seed, **SMALL)
        found.append(losses(job, 1))
        assert job.metrics()["efficiency"] == 1
        job.close()
    assert found[0] == found[1]


def test_the_model_is_the_originals():
    job = jobs.get("scaling")(jobs.JobConfig(batch_size=128))
    with torch.device("meta"):
        model = import_torchvision().models.get_model(job.options["network"], weights=None)
    assert sum(p.numel() for p in model.parameters()) == 44_549_160
    assert job.scope == "all"


def test_refused():
    with pytest.raises(InvalidArgument, match=r"devices 1000: this machine has \d+ cores"):
        make("scaling", 2, devices=1000)
    with pytest.raises(InvalidArgument, match="devices -1"):
        make("scaling", 2, devices=-1)
    with pytest.raises(InvalidArgument, match="steps must be 1 or more, got 0"):
        make("scaling", 2, steps=0)
