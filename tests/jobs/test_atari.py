# SPDX-License-Identifier: MIT
import copy

import numpy as np
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from job_runs import losses, make, parameters

SMALL = {"num_steps": 8, "num_processes": 2}


class Bandit:
    """Two games that pay 1 for action 2 and end every fourth step."""

    class single_action_space:
        n = 6

    def __init__(self):
        self.steps, self.closed = 0, 0

    def reset(self, seed=None):
        return np.full((2, 4, 84, 84), 100, np.uint8), {}

    def step(self, actions):
        self.steps += 1
        end = np.full(2, self.steps % 4 == 0)
        return self.reset()[0], (actions == 2).astype(np.float64), end, np.zeros(2, bool), {}

    def close(self):
        self.closed += 1


@pytest.fixture
def bandit(monkeypatch):
    game = Bandit()
    monkeypatch.setattr("dnnsuite.data.games.atari", lambda *_: (game, "a bandit"))
    return game


def test_it_learns_what_pays(bandit):
    job = make("atari", 2, **{**SMALL, "num_steps": 16})
    probability = lambda: job.model(torch.from_numpy(bandit.reset()[0]))[0].detach().softmax(1)[0, 2].item()  # noqa: E731
    before = probability()
    assert before == pytest.approx(1 / 6, abs=0.02)
    losses(job, 6 * 16)
    assert probability() > 0.5
    assert job.metrics()["episode_return"] >= 1.5  # of 4; by chance it is 0.67


def test_the_model_is_the_originals():
    job = make("atari", 8, num_steps=128, num_processes=8)
    convolutions = (4 * 64 * 32 + 32) + (32 * 16 * 64 + 64) + (64 * 9 * 32 + 32)
    assert parameters(job) == convolutions + (32 * 49 * 512 + 512) + (512 + 1) + (512 * 6 + 6) == 866_439
    assert job.items_per_step == 128 * 8 / 16
    assert job.optimizers[0].defaults["lr"] == 7e-4
    job.close()


def rolled_out(job):
    """All that a job of one mini-batch has played, in some order, without the loss's weights."""
    return job.batches.batch_of(job.model, 0)[:-1]


def test_a_rollout_of_pong():
    job = make("atari", 2, **SMALL, num_mini_batch=1)
    images, actions, chosen, values, _, advantages = rolled_out(job)
    assert images.shape == (16, 4, 84, 84)
    assert images.dtype == torch.uint8
    logits, now = job.model(images)
    torch.testing.assert_close(logits.log_softmax(1)[range(16), actions].detach(), chosen, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(now.detach(), values, atol=1e-5, rtol=1e-4)
    assert float(advantages.mean()) == pytest.approx(0, abs=1e-5)
    job.close()


def test_an_update_by_hand(bandit):
    one = {**SMALL, "num_mini_batch": 1}
    images, actions, chosen, old, target, advantages = rolled_out(make("atari", 2, **one))
    bandit.steps = 0
    job = make("atari", 2, **one)
    separate = copy.deepcopy(job.model)
    optimizer = torch.optim.Adam(separate.parameters(), lr=7e-4, eps=1e-5)
    for _ in range(4):  # one mini-batch is everything, in whichever order
        logits, values = separate(images)
        policy = torch.distributions.Categorical(logits=logits)
        ratio = (policy.log_prob(actions) - chosen).exp()
        gain = torch.min(ratio * advantages, ratio.clamp(0.9, 1.1) * advantages).mean()
        clipped = old + (values - old).clamp(-0.1, 0.1)
        error = torch.max((values - target) ** 2, (clipped - target) ** 2).mean() / 2
        optimizer.zero_grad()
        (0.5 * error - gain - 0.01 * policy.entropy().mean()).backward()
        torch.nn.utils.clip_grad_norm_(separate.parameters(), 0.5)
        optimizer.step()
        job.step()
    for ours, theirs in zip(job.model.parameters(), separate.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-3)


def test_the_learning_rate_falls_over_ten_million_frames(bandit):
    job = make("atari", 2, **SMALL)
    rate = job.workload.rate
    assert rate(0, 0) == rate(15, 0) == 1 > rate(16, 0)
    updates = 10_000_000 // (128 * 8)
    assert rate(16 * updates // 2, 0) == pytest.approx(0.5, abs=1e-3)
    assert rate(16 * updates, 0) == rate(20 * updates, 0) == 0
    losses(job, 17)
    assert job.optimizers[0].param_groups[0]["lr"] == pytest.approx(7e-4 * rate(17, 0))


def test_same_seed_same_losses():
    def run(seed):
        job = make("atari", 2, seed=seed, **SMALL)
        found = losses(job, 1)
        job.close()
        return found

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_close_ends_the_games(bandit):
    job = make("atari", 2, **SMALL)
    job.close()
    assert bandit.closed == 1


def test_half_precision(bandit):
    assert abs(losses(make("atari", 2, precision="bf16", **SMALL), 1)[0]) < 1


def test_refused():
    with pytest.raises(InvalidArgument, match="num_steps 1 x num_processes 2 must be num_mini_batch 4 or more"):
        make("atari", 2, num_steps=1, num_processes=2)
