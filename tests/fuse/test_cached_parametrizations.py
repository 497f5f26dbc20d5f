# SPDX-License-Identifier: MIT
"""`parametrize.cached`, whose cache is one for the process, gives each model its own weights."""

import copy

import pytest
import torch
from torch.nn.utils import parametrize

import dnnsuite
from dnnsuite import optim
from helpers import make_models


class Symmetric(torch.nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).mT


class Twice(torch.nn.Module):
    """A layer that is called twice; with `decides` by code that reads a number, so that models run one by one."""

    def __init__(self, decides=False):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)
        parametrize.register_parametrization(self.layer, "weight", Symmetric())
        self.decides = decides

    def forward(self, x):
        with parametrize.cached():
            h = self.layer(x)
            h = h + self.layer(h)
        return 2 * h if self.decides and h.detach().sum().item() > 0 else h


def draw():
    return torch.randn(4, 6, dtype=torch.float64)


@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("around", [False, True])
def test_by_hand_inside_of_it_and_outside(decides, around):
    plain = make_models(lambda: Twice(decides), 3, torch.float64)
    array = dnnsuite.fuse(make_models(lambda: Twice(decides), 3, torch.float64))
    for _ in range(4):
        x = draw()
        expected = torch.stack([model(x) for model in plain])
        if around:
            with parametrize.cached():
                assert parametrize._cache_enabled == 1
                found = array(dnnsuite.stack(x, B=3))
        else:
            found = array(dnnsuite.stack(x, B=3))
        torch.testing.assert_close(found, expected)
    assert not parametrize._cache


@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_steps_of_shards(decides, threads):
    plain = make_models(lambda: Twice(decides), 3, torch.float64)
    assert len({type(model.layer) for model in plain}) == 3  # torch's cache keeps these apart, and no copies
    array = dnnsuite.fuse([copy.deepcopy(model) for model in plain])
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in plain]
    own = optim.SGD(array.parameters(), lr=0.01)
    with dnnsuite.StepRunner(
        array, own, lambda array, x: array(x).square().mean((1, 2)), threads=threads, width=1
    ) as runner:
        for _ in range(25):
            x = draw()
            found = runner.step(dnnsuite.stack(x, B=3)).losses()
            for index, (model, optimizer) in enumerate(zip(plain, optimizers, strict=True)):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                torch.testing.assert_close(found[index], loss.detach())
