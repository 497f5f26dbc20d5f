# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import reso
from job_runs import losses, make, parameters


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(reso, "CROP", 32)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_loss_falls_and_pictures_come_closer(precision):
    job = make("reso", batch_size=8, data="synthetic", lr=0.003, precision=precision)
    before = job.metrics()["psnr"]
    values = losses(job, 40)
    assert sum(values[-5:]) < 0.3 * sum(values[:5])
    assert job.metrics()["psnr"] > before + 3


def test_a_step_is_adam_on_the_mean_squared_error():
    job = make("reso", data="synthetic")
    separate = copy.deepcopy(job.model)
    optimizer = torch.optim.Adam(separate.parameters(), lr=0.1)  # the original's setting
    for _ in range(2):
        low, high = job.batch()
        assert low.shape == (2, 1, 16, 16)
        assert high.shape == (2, 1, 32, 32)
        optimizer.zero_grad()
        loss = (separate(low) - high).square().mean()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(job.train((low, high)), loss)
    for ours, theirs in zip(job.model.parameters(), separate.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_same_seed_same_losses():
    first, again, other = (losses(make("reso", data="synthetic", seed=seed), 2) for seed in (1, 1, 2))
    assert first == again != other


def test_the_ratio_is_that_of_its_definition():
    job = make("reso", data="synthetic", testBatchSize=8)
    low, high = (part.float() / 255 for part in job._test)
    with torch.no_grad():
        error = (job.model(low) - high).square().mean()
    assert job.metrics()["psnr"] == pytest.approx(float(10 * torch.log10(1 / error)), rel=1e-5)


def test_the_size_the_units_and_the_record():
    job = make("reso", data="synthetic")
    assert parameters(job) == 58212
    assert (job.items_per_step, job.seed_unit) == (2, ("images", 1))
    assert job.provenance()["data"]["count"] == 64
    assert job.defaults["lr"] == 0.1


def test_no_test_batch_is_refused():
    with pytest.raises(InvalidArgument, match="testBatchSize 0 is below 1"):
        jobs.get("reso")(jobs.JobConfig(options={"testBatchSize": 0}))
