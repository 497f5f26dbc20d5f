# SPDX-License-Identifier: MIT
"""Models that draw random numbers are captured, and draw what they would as written, whatever the width."""

import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite import StepRunner, optim
from helpers import make_models

B = 3


class Drawing(torch.nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.inner = torch.nn.Linear(4, 6)
        self.__dict__["draw"] = draw

    def forward(self, x):
        return self.draw(self.inner(x))


def dropped_path(y):
    keep = y.new_empty(y.size(0), 1).bernoulli_(0.7)
    return y * keep.div_(0.7)


def mixed_up(y):
    weight = torch.rand(())
    return weight * y + (1 - weight) * y[torch.randperm(y.size(0))]


def distributions(y):
    normal = torch.distributions.Normal(y, y.exp() + 0.1)
    chosen = torch.distributions.Categorical(logits=y).sample()
    kl = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0))
    return normal.rsample() + kl + chosen.unsqueeze(1)


def gamma(y):
    one = torch.distributions.Gamma(y.exp() + 0.5, 2.0).rsample() + torch.distributions.Chi2(y.exp() + 0.5).rsample()
    return one + torch.distributions.StudentT(y.exp() + 3).rsample()


DRAWS = {
    "dropped path": dropped_path,
    "noise": lambda y: y + torch.randn_like(y) * torch.randint(1, 3, (6,)) + torch.normal(y.detach(), 0.1),
    "mixup": mixed_up,
    "functions": lambda y: F.gumbel_softmax(y) + F.rrelu(y, training=True) + F.dropout(y, 0.5),
    "by rate": lambda y: y * torch.bernoulli(y.sigmoid()) + torch.poisson(y.exp()),
    "distributions": distributions,
    "gamma": gamma,
}


def steps_of(draw, capture, width, threads):
    array = dnnsuite.fuse(make_models(lambda: Drawing(draw), B), seeds=[1, 2, 3])
    optimizer = optim.Adam(array.parameters(), lr=0.01)

    def loss(array, x):
        return array(x).square().mean((1, 2))

    with StepRunner(array, optimizer, loss, threads=threads, width=width, capture=capture) as runner:
        generator = torch.Generator().manual_seed(0)
        losses = [runner.step(torch.randn(B, 5, 4, generator=generator)).losses().clone() for _ in range(7)]
        return [torch.stack(losses), *array.parameters()], runner.mode


@pytest.mark.parametrize("name", DRAWS)
def test_a_replay_draws_what_the_step_as_written_does(name):
    written, _ = steps_of(DRAWS[name], False, B, 1)
    for width, threads in [(B, 1), (1, 2)]:
        captured, mode = steps_of(DRAWS[name], True, width, threads)
        assert mode == "captured"
        for a, b in zip(captured, written, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        if width == B:
            assert all(map(torch.equal, captured, written))
