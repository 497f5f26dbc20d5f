# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument

SMALL = {"interactions": 200_000, "factors": 8, "layers": "16 16 8"}


def made(batch_size=256, options=SMALL, **settings):
    job = jobs.get("recom")(jobs.JobConfig(batch_size=batch_size, options=options, **settings))
    job.setup()
    return job


def test_the_loss_falls():
    job = made(options={**SMALL, "learning_rate": 0.02})
    losses = []
    for _ in range(40):
        job.step()
        losses += job.losses()
    assert sum(losses[-8:]) < 0.9 * sum(losses[:8])


def test_the_model_is_the_originals():
    job = made(options={"interactions": 1000})
    tables = (138_493 + 26_744) * (64 + 128)
    perceptron = (256 * 256 + 256) + (256 * 128 + 128) + (128 * 64 + 64) + (64 + 64 + 1)
    assert job.provenance()["parameters"] == tables + perceptron == 31_832_577
    assert job.items_per_step == 256
    assert job.optimizer.defaults["lr"] == 0.0005


def test_a_step_by_hand():
    job = made(batch_size=16)
    separate = copy.deepcopy(job.model)
    batch = job.batch()
    probability = torch.sigmoid(separate(batch.users, batch.items))
    likelihood = torch.where(batch.labels == 1, probability, 1 - probability)
    expected = -likelihood.log().mean()
    expected.backward()
    torch.testing.assert_close(job.train(batch).detach(), expected.detach())
    for ours, theirs in zip(job.model.parameters(), separate.parameters(), strict=True):
        # Adam's first step is -lr · g / (|g| + eps), with m = 0.1 g / (1 - 0.9) and v = 0.001 g² / (1 - 0.999).
        moved = theirs.detach() - 0.0005 * theirs.grad / (theirs.grad.abs() + 1e-8)
        torch.testing.assert_close(ours.detach(), moved, atol=2e-6, rtol=0)


def test_same_seed_same_losses():
    def losses(seed):
        job = made(batch_size=32, seed=seed)
        job.step()
        return job.losses()

    assert losses(5) == losses(5)
    assert losses(5) != losses(6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision(precision):
    job = made(batch_size=32, precision=precision)
    job.step()
    assert 0.3 < job.losses()[0] < 1.0


def test_widths_may_be_a_list_and_must_be_numbers():
    assert made(options={**SMALL, "layers": [16, 16, 8]}).provenance()["model"]["layers"] == [16, 16, 8]
    with pytest.raises(InvalidArgument, match="got '16 wide'"):
        made(options={**SMALL, "layers": "16 wide"})
