# SPDX-License-Identifier: MIT
"""A ReLU and the pooling behind it are one pass, and nothing else about them is to be seen."""

import copy

import pytest
import torch
from torch.nn import functional as F

import dnnsuite
from dnnsuite.nn.functional import pooling
from dnnsuite.nn.model_tensor import ModelTensor, outside
from dnnsuite.nn.waiting import input_of_relu, waiting_relu

nn = torch.nn


class Net(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.conv, self.more = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.relu, self.pool, self.line = nn.ReLU(), nn.MaxPool2d(2), nn.MaxPool1d(3, 2, 1)
        self.inplace = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.first = nn.Sequential(nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.through = forward

    def forward(self, x):
        return self.through(self, x)


def used_later(net, x):
    """As a U-Net does: what was pooled is wanted once more."""
    h = F.relu(net.conv(x))
    return net.more(net.pool(h)).sum() + (h * h).sum()


def input_written(net, x):
    """The ReLU is that of the values before."""
    y = net.conv(x)
    h = F.relu(y)
    y.mul_(-1)
    return (net.pool(h) + F.max_pool2d(y, 2)).square().sum()


def input_overwritten(net, x):
    """A ReLU in place changes what others hold."""
    y = net.conv(x)
    return (net.first(y)).square().sum() + y.sum()


def without_gradient(net, x):
    with torch.no_grad():
        h = F.relu(net.conv(x))
    return (net.pool(h) * net.conv.weight.sum()).sum()


def with_indices(net, x):
    values, indices = F.max_pool2d(F.relu(net.conv(x)), 2, return_indices=True)
    return (values * indices).sum()


FORWARDS = {
    "layers": lambda net, x: net.pool(net.relu(net.conv(x))).square().sum(),
    "functions": lambda net, x: F.max_pool2d(torch.relu(net.conv(x)), 3, 2, padding=1).square().sum(),
    "named": lambda net, x: F.max_pool2d(input=net.conv(x).relu(), kernel_size=2).square().sum(),
    "lines": lambda net, x: net.line(F.relu(net.conv(x).flatten(2))).square().sum(),
    "in place": lambda net, x: (net.inplace(x)).square().sum(),
    "input overwritten": input_overwritten,
    "wide window": lambda net, x: F.max_pool2d(F.relu(net.conv(x)), (2, 7), (1, 1), (1, 3)).sum(),
    "adaptive": lambda net, x: F.adaptive_max_pool2d(F.relu(net.conv(x)), 2).square().sum(),
    "used later": used_later,
    "input written": input_written,
    "without gradient": without_gradient,
    "with indices": with_indices,
}


@pytest.fixture(autouse=True)
def _pools_the_smallest(monkeypatch):
    """By our operator, also what is too small for it to be quicker."""
    monkeypatch.setattr(pooling, "FEW_NUMBERS", 0)
    monkeypatch.setattr(pooling, "FEW_TAKEN", 0)


@pytest.mark.parametrize("name", FORWARDS)
def test_as_separate_models(name):
    torch.manual_seed(0)
    models = [Net(FORWARDS[name]).double() for _ in range(2)]
    array = dnnsuite.fuse(copy.deepcopy(models))
    x = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    array(dnnsuite.stack(x, 2)).sum().backward()
    for index, model in enumerate(models):
        loss = model(x)
        if loss.requires_grad:
            loss.backward()
        for key, parameter in model.named_parameters():
            mine = dict(array.named_parameters())[key].grad
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(torch.zeros_like(own) if mine is None else mine[index], own)


def test_a_sequential_is_one_pass_with_its_relu():
    """Nothing keeps the ReLU's result: its input is that of the operator."""
    array = dnnsuite.fuse([nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2)) for _ in range(2)])
    y = array(torch.randn(2, 3, 1, 6, 6))
    nodes, names = [y.grad_fn], set()
    while nodes:
        node = nodes.pop()
        names.add(type(node).__name__)
        nodes += [following for following, _ in node.next_functions if following is not None]
    assert not any("Relu" in name for name in names)


def test_it_waits_only_for_what_can_be_pooled():
    with outside():
        assert waiting_relu(torch.randn(2, 3, 4)) is None
        assert waiting_relu(torch.randn(2, 3, 4, 5, 5).bfloat16()) is None
        x = torch.randn(2, 3, 4, 5, 5)
        waiting = waiting_relu(x)
        assert type(waiting) is ModelTensor
        assert input_of_relu(waiting.deferred) is x
        assert torch.equal(waiting.value, x.relu())
        with torch.no_grad():
            assert input_of_relu(waiting_relu(x).deferred) is x
        later = waiting_relu(x)
        with torch.no_grad():
            assert input_of_relu(later.deferred) is None
        assert input_of_relu(None) is None
