# SPDX-License-Identifier: MIT
"""Gates in users' code: the product of one half of a tensor with the sigmoid of the other."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dnnsuite


def _chunk(x, dim):
    first, second = x.chunk(2, dim)
    return first * second.sigmoid()


def _turned(x, dim):
    first, second = x.split(x.size(dim) // 2, dim)
    return torch.sigmoid(second) * first


def _swapped(x, dim):
    second, first = x.chunk(2, dim)
    return first * second.sigmoid()


def _indexed(x, dim):
    half = x.size(dim) // 2
    return torch.mul(x.narrow(dim, 0, half), F.sigmoid(x.narrow(dim, half, half)))


def _kept(x, dim):
    first, second = x.chunk(2, dim)
    gate = second.sigmoid()
    return first * gate + gate.mean()


def _detached(x, dim):
    first, second = x.chunk(2, dim)
    return first.detach() * second.sigmoid() + first * second.detach().sigmoid()


def _written(x, dim):
    half, x = x.size(dim) // 2, x * 2
    first, gate = x.narrow(dim, 0, half), x.narrow(dim, half, half).sigmoid()
    first.mul_(3)
    return first * gate


def _other(x, dim):
    first, second = x.chunk(2, dim)
    third, _ = (x * 2).chunk(2, dim)
    return third * second.sigmoid() + first


def _glu(x, dim):
    return F.glu(x, dim)


WAYS = (_chunk, _turned, _swapped, _indexed, _kept, _detached, _written, _other, _glu)


class Gated(nn.Module):
    """A layer, and a gate of the user's own over its output's halves."""

    def __init__(self, way, dim, images, channels=12):
        super().__init__()
        self.layer = nn.Conv2d(3, channels, 3) if images else nn.Linear(3, channels)
        self.way, self.dim = way, dim

    def forward(self, x):
        return self.way(self.layer(x), self.dim)


def _events(array, x):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        array(x).sum().backward()
    return {event.key for event in profile.key_averages()}


def _compare(models, shape):
    """Values and gradients of the array against those of the separate models, in float64."""
    array = dnnsuite.fuse(copy.deepcopy(models))
    x = torch.randn(len(models), *shape, dtype=torch.float64)
    own, others = x.clone().requires_grad_(), x.clone().requires_grad_()
    y = array(own)
    truth = torch.stack([model(one) for model, one in zip(models, others, strict=True)])
    torch.testing.assert_close(y, truth)
    grad = torch.randn_like(truth)
    y.backward(grad)
    truth.backward(grad)
    torch.testing.assert_close(own.grad, others.grad)
    weights = torch.stack([model.layer.weight.grad for model in models])
    torch.testing.assert_close(array.layer.weight.grad.view_as(weights), weights)
    return array


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("dim", "shape"), [(1, (4, 3, 12, 12)), (2, (4, 3, 14, 12)), (-1, (4, 60, 3)), (1, (4, 60, 3)), (0, (60, 3))]
)
def test_values_and_gradients(way, dim, shape):
    models = [Gated(way, dim, len(shape) == 4).double() for _ in range(3)]
    _compare(models, shape)


@pytest.mark.parametrize("way", [_chunk, _turned, _glu])
@pytest.mark.parametrize("images", [True, False])
def test_is_one_pass(way, images):
    array = dnnsuite.fuse([Gated(way, 1 if images else -1, images) for _ in range(3)])
    names = _events(array, torch.randn(3, 4, 3, 14, 14) if images else torch.randn(3, 4, 60, 3))
    assert {"dnnsuite::glu", "dnnsuite::glu_backward"} <= names
    assert "aten::sigmoid" not in names


def test_without_gradients():
    models = [Gated(_chunk, 1, True) for _ in range(3)]
    array, x = dnnsuite.fuse(copy.deepcopy(models)), torch.randn(3, 4, 3, 14, 14)
    with torch.no_grad():
        truth = torch.stack([model(one) for model, one in zip(models, x, strict=True)])
        torch.testing.assert_close(array(x), truth, rtol=1e-4, atol=1e-5)


class Watched(Gated):
    def forward(self, x):
        first, second = self.layer(x).chunk(2, 1)
        first.retain_grad()
        self.first = first
        return first * second.sigmoid()


def test_a_half_whose_gradient_is_kept_gets_it():
    array = dnnsuite.fuse([Watched(None, 1, True) for _ in range(3)])
    names = _events(array, torch.randn(3, 4, 3, 14, 14))
    assert "aten::sigmoid" in names


class Penalised(Gated):
    def forward(self, x):
        features = self.layer(x)
        y = _chunk(features, 1)
        (found,) = torch.autograd.grad(y.square().sum(), features)
        return found


def test_what_was_cut_is_on_the_way_of_the_gradient():
    models = [Penalised(None, 1, True).double() for _ in range(3)]
    array, x = dnnsuite.fuse(copy.deepcopy(models)), torch.randn(3, 4, 3, 14, 14, dtype=torch.float64)
    truth = torch.stack([model(one) for model, one in zip(models, x, strict=True)])
    torch.testing.assert_close(array(x), truth)
