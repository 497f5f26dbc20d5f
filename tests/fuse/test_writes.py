# SPDX-License-Identifier: MIT
"""Forwards that write into parameters, replace or delete them; hooks that are methods of their model."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite.errors import InvalidArgument
from helpers import make_models


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.scale = (nn.Linear(4, 5), nn.Linear(5, 2), nn.Parameter(torch.rand(5) + 0.5))
        self.register_buffer("code", torch.randn(5, 3))

    def prepared(self):
        pass

    def forward(self, x):
        self.prepared()
        return self.last(torch.tanh(self.first(x)) * self.scale)


class Divides(Base):
    def prepared(self):
        with torch.no_grad():
            self.first.weight /= self.first.weight.norm(dim=1, keepdim=True)
            self.scale *= 0.9


class GivesData(Base):
    def prepared(self):
        self.first.weight.data = F.normalize(self.first.weight.data, dim=1)
        self.last.weight.data.clamp_(-0.2, 0.2)


class WritesAfterUse(Base):
    """`.data` has a version of its own: autograd does not take the write for one into what it has kept."""

    def forward(self, x):
        y = super().forward(x)
        self.last.weight.data.mul_(0.99)
        return y


class EveryParameter(Base):
    def prepared(self):
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.clamp_(-0.3, 0.3)


class Codebook(Base):
    """Moving averages, by name and in place."""

    def forward(self, x):
        y = self.first(x)
        with torch.no_grad():
            self.code.mul_(0.9).add_(y.mean(0)[:, None], alpha=0.1)
            self.code[0] = self.code[1] / 2
        return self.last(y @ self.code @ self.code.t())


class WeightOfItsOwn(Base):
    """As torch's old weight_norm: the layer's weight is an attribute that each forward sets."""

    def __init__(self):
        super().__init__()
        self.direction = nn.Parameter(self.first.weight.detach().clone())
        del self.first.weight

    def prepared(self):
        self.first.weight = self.direction / self.direction.norm(dim=1, keepdim=True)


class MethodsAsHooks(Base):
    def __init__(self):
        super().__init__()
        self.seen = None
        self.handles = [self.first.register_forward_hook(self.kept)]
        self.first.register_forward_pre_hook(self.scaled)

    def scaled(self, module, args):
        return (args[0] * self.scale[:4],)

    def kept(self, module, args, output):
        self.seen = output

    def forward(self, x):
        return self.last(self.first(x) + self.seen.sin())


def loss_of(module, x):
    return module(x).square().flatten(1).mean(1)


CASES = [Divides, GivesData, WritesAfterUse, EveryParameter, Codebook, WeightOfItsOwn, MethodsAsHooks]


@pytest.mark.parametrize("case", CASES)
def test_trains_as_separate_models_do(case):
    models = [case().double() for _ in range(2)]
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    direct = dnnsuite.fuse(copy.deepcopy(models))
    captured = dnnsuite.fuse(copy.deepcopy(models))
    optimizer = optim.SGD(direct.parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        optimizer.zero_grad()
        loss_of(direct, x).sum().backward()
        optimizer.step()
    optimizer = optim.SGD(captured.parameters(), lr=0.1, momentum=0.9)
    with dnnsuite.StepRunner(captured, optimizer, loss_of, threads=2, width=1) as runner:
        for _ in range(5):
            runner.step(x).losses()
        assert runner.mode == "captured" or case is MethodsAsHooks
    for index, model in enumerate(models):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(5):
            optimizer.zero_grad()
            model(x[index]).square().mean().backward()
            optimizer.step()
        for name, value in model.state_dict().items():
            for array in (direct, captured):
                found = array.model_state_dict(index)[name]
                torch.testing.assert_close(found, value, rtol=1e-10, atol=1e-12, msg=name)
    assert not any(cover.reason for cover in direct.coverage())


def test_hooks_of_a_copied_model_are_its_own():
    array = dnnsuite.fuse([MethodsAsHooks() for _ in range(2)])
    for model in (array[1], copy.deepcopy(array)[1]):
        model(torch.randn(3, 4))
        assert model.seen.shape == (3, 5)
        model.handles[0].remove()
        model.seen = torch.zeros(())
        model(torch.randn(3, 4))
        assert not model.seen.dim()
    assert array.seen is None


class Deletes(Base):
    def forward(self, x):
        weight = self.first.weight
        del self.first.weight
        self.first.weight = weight * 2
        y = super().forward(x)
        del self.first.weight
        self.first.weight = weight
        return y


def test_a_parameter_that_the_forward_deletes():
    array = dnnsuite.fuse([Deletes() for _ in range(2)])
    before = {name: value.clone() for name, value in array.state_dict().items()}
    with pytest.raises(InvalidArgument, match=r"deletes the parameter weight of a Linear.*parametrize"):
        array(torch.randn(2, 3, 4))
    assert list(array.state_dict()) == list(before)
    assert all(map(torch.equal, array.state_dict().values(), before.values()))


@pytest.mark.parametrize("make", [lambda n: nn.Linear(4, n), lambda n: nn.ParameterList([torch.zeros(n)])])
def test_models_of_different_shapes_are_to_be_grouped(make):
    with pytest.raises(InvalidArgument, match=r"group them by shape, and fuse each group"):
        dnnsuite.fuse([make(3), make(4)])


class CountingApart(torch.nn.Module):
    """Models that go different ways, keep what they have computed, and count."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls, self.kept = torch.nn.Linear(3, 2), 0, None

    def forward(self, x):
        self.calls += 1
        self.kept = self.layer(x).detach()
        y = self.layer(x)
        while y.abs().mean().item() > 0.2:
            y = y * 0.5
        return y


@pytest.mark.parametrize(("width", "capture"), [(3, False), (2, False), (1, True), (3, True)])
def test_a_counter_of_models_that_keep_something_of_their_own_counts_in_the_array(width, capture):
    array = dnnsuite.fuse(make_models(CountingApart, 3))
    optimizer, counts = optim.SGD(array.parameters(), lr=0.01), []
    with StepRunner(
        array, optimizer, lambda part, x: part(x).square().mean((1, 2)), threads=1, width=width, capture=capture
    ) as runner:
        for _ in range(8):
            runner.step(torch.randn(3, 4, 3)).losses()
            counts.append(array.calls)
    assert counts == list(range(1, 9))
    assert [model.calls for model in dnnsuite.unfuse(array)] == [8, 8, 8]
