# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument
from job_runs import losses, make, parameters

SMALL = {"data": "synthetic", "ngf": 4, "ndf": 4}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_discriminator_learns(precision):
    job = make("dcgan", batch_size=4, **SMALL, lr=2e-3, precision=precision)
    values = losses(job, 40)
    assert sum(values[-4:]) < 0.6 * sum(values[:4])
    errors = job.metrics()
    assert errors["errD_real"] + errors["errG_fake"] == pytest.approx(values[-1], rel=1e-3)
    assert errors["errG"] > 0


def test_a_step_is_two_steps_of_adam():
    job = make("dcgan", batch_size=3, **SMALL)
    generator, discriminator = copy.deepcopy(job.generator), copy.deepcopy(job.discriminator)
    generator_optimizer, discriminator_optimizer = (
        torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999)) for model in (generator, discriminator)
    )
    softplus = torch.nn.functional.softplus
    for _ in range(2):
        x = job.batch()
        assert x.shape == (3, 3, 64, 64)
        assert -1 <= x.min() < x.max() <= 1
        torch.manual_seed(4)
        fake = generator(torch.randn(3, 100, 1, 1))
        loss = softplus(-discriminator(x)).mean() + softplus(discriminator(fake.detach())).mean()
        discriminator_optimizer.zero_grad()
        loss.backward()
        discriminator_optimizer.step()
        generator_optimizer.zero_grad()
        softplus(-discriminator(fake)).mean().backward()
        generator_optimizer.step()
        torch.manual_seed(4)
        torch.testing.assert_close(job.train(x), loss)
    separate = torch.nn.ModuleList([generator, discriminator])
    for ours, theirs in zip(job.model.parameters(), separate.parameters(), strict=True):
        # Adam moves by the learning rate whatever the gradient's size: where that is rounding, signs may differ.
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_same_seed_same_losses():
    first, again, other = (losses(make("dcgan", **SMALL, seed=seed), 2) for seed in (1, 1, 2))
    assert first == again != other


def test_the_sizes():
    job = make("dcgan", batch_size=1, data="synthetic")
    widths = [512, 256, 128, 64]
    generator = 100 * 512 * 16 + sum(16 * a * b for a, b in zip(widths, [*widths[1:], 3], strict=True))
    discriminator = sum(16 * a * b for a, b in zip([3, *widths[::-1]], [*widths[::-1], 1], strict=True))
    norms = 2 * sum(widths), 2 * sum(widths[:3])
    assert parameters(job) == generator + norms[0] + discriminator + norms[1] == 3576704 + 2765568


def test_the_units_and_the_record():
    job = make("dcgan_all", **SMALL)
    assert (job.items_per_step, job.scope) == (2, "all")
    assert jobs.get("dcgan").scope == "student"
    assert job.provenance()["processes"] == 1
    assert losses(job, 2) == losses(make("dcgan", **SMALL), 2)  # alone, it is the other
    job.close()


def test_another_image_size_is_refused():
    with pytest.raises(InvalidArgument, match="imageSize 32: the layers of DCGAN are for images of 64"):
        jobs.get("dcgan")(jobs.JobConfig(options={"imageSize": 32}))
