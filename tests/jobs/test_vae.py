# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite import jobs, models
from dnnsuite.errors import InvalidArgument
from job_runs import losses, make, parameters


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_loss_falls(precision):
    job = make("vae", batch_size=32, data="synthetic", precision=precision)
    before = job.metrics()["test_loss_per_image"]
    values = losses(job, 40)
    assert sum(values[-5:]) < 0.8 * sum(values[:5])
    assert job.metrics()["test_loss_per_image"] < 0.9 * before


def test_a_step_is_adam_on_the_summed_loss():
    job = make("vae", batch_size=8, data="synthetic")
    separate = copy.deepcopy(job.model)
    optimizer = torch.optim.Adam(separate.parameters(), lr=1e-3)
    for _ in range(2):
        x = job.batch()
        assert x.shape == (8, 784)
        assert 0 <= x.min() < x.max() == 1
        torch.manual_seed(5)
        optimizer.zero_grad()
        reconstruction, mean, log_variance = separate(x)
        loss = models.negative_elbo(reconstruction, x, mean, log_variance)
        loss.backward()
        optimizer.step()
        torch.manual_seed(5)
        torch.testing.assert_close(job.train(x), loss)
    for ours, theirs in zip(job.model.parameters(), separate.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_same_seed_same_losses():
    runs = [
        losses(make("vae", batch_size=4, data="synthetic", seed=seed, data_seed=data_seed), 2)
        for seed, data_seed in [(1, 1), (1, 1), (2, 1), (1, 2)]
    ]
    assert runs[0] == runs[1]
    assert len({tuple(run) for run in runs}) == 3


def test_the_size_the_units_and_the_record():
    job = make("vae", batch_size=128, data="synthetic")
    assert parameters(job) == 652824
    assert job.items_per_step == 128
    assert job.seed_unit == ("images", 1)
    assert job.provenance()["data"]["source"].startswith("synthetic")
    assert len(job.provenance()["data"]["sha256"]) == 64


def test_options_are_refused():
    with pytest.raises(InvalidArgument, match="no option 'latent'; it has none"):
        jobs.get("vae")(jobs.JobConfig(options={"latent": 2}))
