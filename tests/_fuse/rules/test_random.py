# SPDX-License-Identifier: MIT
"""Random functions in a user's code: one stream per model."""

import copy

import pytest
import torch

import dnnsuite
from helpers import make_models


class Noise(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        mean = self.inner(x)
        y = mean + torch.randn_like(mean) + torch.rand_like(mean)
        y = torch.nn.functional.dropout(y, 0.4, self.training)
        return y + torch.bernoulli(torch.sigmoid(mean)) + torch.empty_like(mean).normal_()


@pytest.fixture
def models():
    return make_models(Noise, 3)


def test_a_models_numbers_depend_on_neither_slot_nor_neighbours(models):
    x = torch.randn(3, 5, 8)
    array = dnnsuite.fuse(models, seeds=[5, 6, 7])
    turned = dnnsuite.fuse([models[2], models[0]], seeds=[7, 5])
    for _ in range(2):
        whole = array(x)
        part = turned(x[[2, 0]])
        assert torch.equal(whole[2], part[0])
        assert torch.equal(whole[0], part[1])


def test_each_step_and_each_model_has_its_own(models):
    x = torch.randn(5, 8).expand(3, 5, 8)
    array = dnnsuite.fuse([copy.deepcopy(models[0]) for _ in range(3)], seeds=[5, 6, 5])
    first, second = array(x), array(x)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(first[0], first[2])
    dnnsuite.nn.seed(array, [5, 6, 5])
    assert torch.equal(array(x), first)


def test_the_numbers_have_their_distribution(models):
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, x):
            return (torch.randn_like(x) * self.scale, torch.rand_like(x), torch.bernoulli(torch.full_like(x, 0.25)))

    normal, uniform, bernoulli = dnnsuite.fuse([Plain(), Plain()], seeds=[1, 2])(torch.zeros(2, 20000))
    for i in range(2):
        assert abs(normal[i].mean()) < 0.05
        assert abs(normal[i].std() - 1) < 0.05
        assert abs(uniform[i].mean() - 0.5) < 0.02
        assert abs(bernoulli[i].mean() - 0.25) < 0.02


@pytest.mark.parametrize("training", [False, True])
def test_slopes_of_rrelu_that_differ_between_models_are_each_models_own(training):
    class Leaky(torch.nn.Module):
        def __init__(self, slope):
            super().__init__()
            self.slope, self.scale = slope, torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            return torch.nn.functional.rrelu(x * self.scale, self.slope, self.slope, training)

    x = torch.tensor([[-1.0, -2.0, 3.0]])
    models = [Leaky(slope) for slope in (0.1, 0.2, 0.3)]
    own = torch.stack([model(x) for model in models])
    found = dnnsuite.fuse(models)(dnnsuite.stack(x, B=3))
    assert found.shape == own.shape
    torch.testing.assert_close(found, own)
