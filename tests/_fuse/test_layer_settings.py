# SPDX-License-Identifier: MIT
"""Settings of layers, such as a momentum or an eps, that a forward sets in some of the models only, and that stay."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim

B, STEPS = 3, 12
RATES = [0.1, 0.05, 0.02]


class Net(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.inner, self.norm, self.outer = torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)
        self.act = torch.nn.LeakyReLU(0.1)

    def forward(self, x):
        if x.mean() > 0.1:
            self.set()
        return self.outer(self.act(self.norm(self.inner(x))))


class SetsMomentum(Net):
    def set(self):
        self.norm.momentum = self.norm.momentum * 0.9


class SetsEps(Net):
    def set(self):
        self.norm.eps = self.norm.eps * 2


class SetsSlope(Net):
    def set(self):
        self.act.negative_slope = self.act.negative_slope + 0.05


def loss_of(model, x, y):
    return (model(x) - y).square().flatten(1).mean(1)


def batches():
    torch.manual_seed(5)
    return [(torch.randn(B, 5, 4).double(), torch.randn(B, 5, 2).double()) for _ in range(STEPS)]


def settings(model):
    return model.norm.momentum, model.norm.eps, model.act.negative_slope


def trained_alone(models):
    models = copy.deepcopy(models)
    optimizers = [torch.optim.SGD(model.parameters(), lr) for model, lr in zip(models, RATES, strict=True)]
    for x, y in batches():
        for i, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            (model(x[i]) - y[i]).square().mean().backward()
            optimizer.step()
    return models


def assert_alike(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert settings(one) == pytest.approx(settings(other))
        for name, value in other.state_dict().items():
            torch.testing.assert_close(one.state_dict()[name], value, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", [SetsMomentum, SetsEps, SetsSlope])
def test_models_taken_out_of_an_array_have_what_their_code_has_set(kind):
    models = [kind(seed).double() for seed in range(B)]
    expected = trained_alone(models)
    array = dnnsuite.fuse(models)
    optimizer = optim.SGD(array.parameters(), RATES)
    for x, y in batches():
        optimizer.zero_grad()
        loss_of(array, x, y).sum().backward()
        optimizer.step()
    assert_alike(dnnsuite.unfuse(array), expected)
    array.drop(1)
    assert_alike(dnnsuite.unfuse(array), [expected[0], expected[2]])
    if kind is SetsMomentum:  # of which a layer of an array has one of each model
        array.append(expected[1])
        assert_alike(dnnsuite.unfuse(array), [expected[0], expected[2], expected[1]])


@pytest.mark.parametrize(("threads", "width"), [(1, 1), (1, 2), (1, None), (2, 2), (2, None)])
@pytest.mark.parametrize("capture", [True, False])
def test_a_momentum_that_depends_on_the_batch_survives_another_division_into_shards(threads, width, capture):
    models = [SetsMomentum(seed).double() for seed in range(B)]
    expected = trained_alone(models)
    array = dnnsuite.fuse(models)
    optimizer = optim.SGD(array.parameters(), RATES)
    with dnnsuite.StepRunner(
        array, optimizer, loss_of, threads=threads, width=width, capture=capture, audit=0
    ) as runner:
        for batch in batches():
            runner.step(*batch)
    assert_alike(dnnsuite.unfuse(array), expected)


def test_a_setting_of_the_user_takes_the_place_of_what_code_has_set():
    array = dnnsuite.fuse([SetsMomentum(seed).double() for seed in range(B)])
    for x, _ in batches():
        array(x)
    array.norm.momentum = 0.5
    assert [model.norm.momentum for model in dnnsuite.unfuse(array)] == [0.5] * B
