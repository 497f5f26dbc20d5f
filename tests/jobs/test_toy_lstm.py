# SPDX-License-Identifier: MIT
import copy

import numpy as np
import pytest
import torch

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument
from job_runs import losses, make, parameters


def test_the_loss_falls():
    values = losses(make("toy_lstm", length=20), 20)
    assert values[-1] < 0.97 * values[0]
    assert sorted(values, reverse=True) == values  # all waves in each step: nothing is random


def test_it_learns_the_original_waves():
    x, y = make("toy_lstm", batch_size=1).batch()
    assert x.shape == y.shape == (97, 999)
    assert torch.equal(x[:, 1:], y[:, :-1])
    np.random.seed(2)
    starts = np.random.randint(-80, 80, 100)
    expected = np.sin((starts[3] + np.arange(999)) / 20)
    np.testing.assert_allclose(x[0], expected, rtol=1e-6)


def test_a_step_is_sgd_on_the_mean_squared_error():
    job = make("toy_lstm", length=12)
    separate = copy.deepcopy(job.model)
    optimizer = torch.optim.SGD(separate.parameters(), lr=0.01)
    for _ in range(2):
        x, y = job.batch()
        loss = (separate(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.step()
        torch.testing.assert_close(job.last_loss, loss.detach())
    for ours, theirs in zip(job.model.parameters(), separate.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_same_seed_same_losses():
    first, again, other = (losses(make("toy_lstm", length=8, seed=seed), 2) for seed in (1, 1, 2))
    assert first == again != other


def test_units():
    kind = jobs.get("toy_lstm")
    job = kind(jobs.JobConfig(batch_size=1))
    assert job.items_per_step == kind.seed_unit.items == 97 * 999  # so a step is one of the seed's
    assert kind(jobs.JobConfig(options={"length": 11})).items_per_step == 97 * 10


def test_the_size_and_the_dtype():
    job = make("toy_lstm", length=4, dtype="float64")
    assert parameters(job) == 32284
    assert losses(job, 1)
    assert job.last_loss.dtype == torch.float64
    assert job.metrics()["test_mse"] > 0
    assert job.provenance()["model"]["length"] == 4


@pytest.mark.parametrize(
    ("options", "message"), [({"dtype": "int8"}, "dtype 'int8'"), ({"length": 1}, "length 1: ")]
)
def test_what_cannot_be_learnt_is_refused(options, message):
    with pytest.raises(InvalidArgument, match=message):
        jobs.get("toy_lstm")(jobs.JobConfig(options=options))
