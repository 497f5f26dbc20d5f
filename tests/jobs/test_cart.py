# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import jobs
from dnnsuite.data import games
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs.reinforcement import standardized_returns


def made(update_every=100, **settings):
    options = {"update_every": update_every}
    job = jobs.get("cart")(jobs.JobConfig(batch_size=1, options=options, **settings))
    job.setup()
    return job


def test_it_learns_to_hold_the_pole():
    job = made(update_every=200, seed=2)
    returns = []
    for _ in range(20):
        job.step()
        returns.append(job.metrics()["episode_return"])
    assert returns[-1] > 2 * returns[0]
    job.close()


def test_the_model_is_the_originals():
    job = made(update_every=1000)
    assert job.provenance()["parameters_per_model"] == (4 * 128 + 128) + (128 * 2 + 2) == 898
    assert job.items_per_step == 1000
    assert job.optimizers[0].defaults["lr"] == 1e-2
    job.close()


def test_returns_by_hand():
    gamma = 0.5
    values = torch.tensor([1 + 0.5 * 2, 2.0, 3 + 0.5 * 4, 4.0])  # an episode ends after the second step
    expected = (values - values.mean()) / values.std()
    ends = [False, True, False, False]
    torch.testing.assert_close(standardized_returns([1, 2, 3, 4], ends, gamma), expected)


def test_an_update_by_hand():
    job = made(update_every=5)
    start = {name: p.detach().clone() for name, p in job.model.named_parameters()}
    job.step()
    environment, _ = games.cart_pole()
    observation, _ = environment.reset(seed=0)
    # All over again, in one pass: the same actions from the same random numbers.
    separate = torch.nn.Sequential(torch.nn.Linear(4, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2))
    separate.load_state_dict(start)
    random = torch.Generator().manual_seed(0)
    chosen = []
    for _ in range(5):
        probability = separate(torch.from_numpy(observation)[None]).softmax(1)[0]
        action = int(torch.multinomial(probability.detach(), 1, generator=random))
        chosen.append(probability[action].log())
        observation, *_ = environment.step(action)
    returns = torch.tensor([sum(0.99**k for k in range(5 - t)) for t in range(5)])
    returns = (returns - returns.mean()) / returns.std()
    loss = sum(-value * weight for value, weight in zip(chosen, returns, strict=True))
    torch.testing.assert_close(job.last_loss, loss.detach())
    optimizer = torch.optim.Adam(separate.parameters(), lr=1e-2)
    loss.backward()
    optimizer.step()
    for ours, theirs in zip(job.model.parameters(), separate.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    job.close()


def test_same_seed_same_losses():
    def losses(seed):
        job = made(update_every=50, data_seed=seed)
        for _ in range(2):
            job.step()
        job.close()
        return job.losses()

    assert losses(5) == losses(5)
    assert losses(5) != losses(6)


def test_close_ends_the_environment(monkeypatch):
    environment, source = games.cart_pole()
    closed = []
    monkeypatch.setattr(environment, "close", lambda: closed.append(True))
    monkeypatch.setattr(games, "cart_pole", lambda: (environment, source))
    job = made()
    job.close()
    assert closed == [True]


def test_it_stays_on_the_cpu():
    assert jobs.get("cart")(jobs.JobConfig(batch_size=1, device="cuda")).device.type == "cpu"


def test_refused():
    with pytest.raises(InvalidArgument, match="batch_size must be 1, got 2"):
        jobs.get("cart")(jobs.JobConfig(batch_size=2)).setup()
    with pytest.raises(InvalidArgument, match="update_every must be 2 or more, got 1"):
        made(update_every=1)
