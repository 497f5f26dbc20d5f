# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument


@pytest.fixture
def job():
    job = jobs.get("toy_reg")(jobs.JobConfig(batch_size=256, seed=3))
    job.setup()
    return job


def test_the_loss_falls(job):
    losses = []
    for _ in range(300):
        job.step()
        losses += job.losses()
    assert sum(losses[-50:]) < 0.8 * sum(losses[:50])
    assert job.data_wait_ns > 0


def test_a_step_is_gradient_descent(job):
    separate = copy.deepcopy(job.model)
    x, y = job.batch()
    loss = torch.nn.functional.smooth_l1_loss(separate(x), y)
    loss.backward()
    torch.optim.SGD(separate.parameters(), lr=0.01).step()
    assert torch.equal(job.train((x, y)), loss)
    for ours, theirs in zip(job.model.parameters(), separate.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_same_seed_same_losses():
    runs = []
    for _ in range(2):
        job = jobs.get("toy_reg")(jobs.JobConfig(batch_size=8, seed=5))
        job.setup()
        job.step()
        runs.append(job.losses())
    assert runs[0] == runs[1]


def test_it_is_one_plain_model_with_no_other_settings():
    with pytest.raises(InvalidArgument, match="B must be 0, got 2"):
        jobs.get("toy_reg")(jobs.JobConfig(B=2))
    with pytest.raises(InvalidArgument, match="no option 'depth'; it has none"):
        jobs.get("toy_reg")(jobs.JobConfig(options={"depth": 2}))
