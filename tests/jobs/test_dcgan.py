# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite.errors import InvalidArgument
from job_runs import losses, make

SMALL = {"data": "synthetic", "ngf": 4, "ndf": 4}


def test_a_step_is_two_steps_of_adam():
    job = make("dcgan", batch_size=3, **SMALL)
    own = copy.deepcopy(job.model)
    optimizers = {
        name: torch.optim.Adam(getattr(own, name).parameters(), lr=2e-4, betas=(0.5, 0.999))
        for name in ("discriminator", "generator")
    }
    softplus = torch.nn.functional.softplus
    for i in range(2):
        x, z = job.batch(i)
        assert (x.shape, z.shape) == ((3, 3, 64, 64), (3, 100, 1, 1))
        assert -1 <= x.min() < x.max() <= 1
        judged = softplus(-own.discriminator(x)).mean() + softplus(own.discriminator(own.generator(z).detach())).mean()
        own.zero_grad()
        judged.backward()
        optimizers["discriminator"].step()
        passed = softplus(-own.discriminator(own.generator(z))).mean()
        own.zero_grad()
        passed.backward()
        optimizers["generator"].step()
        weights = job.weights()
        assert losses(job, 1) == [pytest.approx(float((judged + passed).detach()), rel=1e-5)]
        assert len(job.weights()) == len(weights) == len(list(own.parameters()))  # though one is held
    for ours, theirs in zip(job.model.parameters(), own.parameters(), strict=True):
        # Adam moves by the learning rate whatever the gradient's size: where that is rounding, signs may differ.
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_loader_in_the_loop_and_the_job_of_all_devices():
    job = make("dcgan_all", **SMALL, workers=0)
    assert (job.items_per_step, job.scope) == (2, "all")
    assert losses(job, 2) == losses(make("dcgan", **SMALL), 2)  # alone, it is the other
    assert job.with_loader().record()["source"]
    assert job.feed == "loader"
    assert all(torch.isfinite(torch.tensor(losses(job, 2))))
    job.close()


def test_another_image_size_is_refused():
    with pytest.raises(InvalidArgument, match="imageSize 32: the layers of DCGAN are for images of 64"):
        make("dcgan", imageSize=32)
