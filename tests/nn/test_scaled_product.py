# SPDX-License-Identifier: MIT
"""Gates of channels and scales of layers in users' code, which are one pass forward and one backward."""

import copy

import pytest
import torch
from torch import nn

import dnnsuite
from dnnsuite.nn.waiting import FEWEST_SCALED

SIDE = 1 + int((FEWEST_SCALED / (4 * 32)) ** 0.5)  # of maps that are large enough


class Squeezed(nn.Module):
    """A gate of channels from their means."""

    def __init__(self):
        super().__init__()
        self.layer, self.gate = nn.Conv2d(3, 32, 3, padding=1), nn.Linear(32, 32)

    def forward(self, x):
        y = self.layer(x)
        return y * torch.sigmoid(self.gate(y.mean((2, 3))))[:, :, None, None]


class Scaled(nn.Module):
    """Channels with factors that are parameters, as a LayerScale has them, and one for all."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 40)
        self.gamma, self.alpha = nn.Parameter(torch.randn(40)), nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return self.gamma * self.layer(x.movedim(1, -1)) * self.alpha


class Written(Squeezed):
    """What a product has read is written into behind it, which torch refuses as well."""

    def forward(self, x):
        y = self.layer(x)
        gate = torch.sigmoid(self.gate(y.mean((2, 3))))[:, :, None, None]
        z = y * gate
        gate.mul_(2)
        return z


def _events(array, x):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        array(x).sum().backward()
    return {event.key for event in profile.key_averages()}


@pytest.mark.parametrize("kind", [Squeezed, Scaled])
@pytest.mark.parametrize("side", [12, SIDE])
def test_values_and_gradients(kind, side):
    models = [kind().double() for _ in range(3)]
    array = dnnsuite.fuse(copy.deepcopy(models))
    x = torch.randn(3, 4, 3, side, side, dtype=torch.float64)
    own, others = x.clone().requires_grad_(), x.clone().requires_grad_()
    y = array(own)
    truth = torch.stack([model(one) for model, one in zip(models, others, strict=True)])
    torch.testing.assert_close(y, truth)
    grad = torch.randn_like(truth)
    y.backward(grad)
    truth.backward(grad)
    torch.testing.assert_close(own.grad, others.grad)
    for name, parameter in array.named_parameters():
        expected = torch.stack([model.get_parameter(name).grad for model in models])
        torch.testing.assert_close(parameter.grad.view_as(expected), expected)


@pytest.mark.parametrize("kind", [Squeezed, Scaled])
def test_is_one_pass(kind):
    names = _events(dnnsuite.fuse([kind() for _ in range(3)]), torch.randn(3, 4, 3, SIDE, SIDE))
    assert {"dnnsuite::scaled", "dnnsuite::scaled_backward"} <= names


def test_small_ones_are_torchs():
    names = _events(dnnsuite.fuse([Squeezed() for _ in range(3)]), torch.randn(3, 4, 3, 8, 8))
    assert "dnnsuite::scaled" not in names


def test_factors_without_gradients_are_torchs():
    models = [Scaled() for _ in range(3)]
    for model in models:
        model.gamma.requires_grad_(False)
        model.alpha.requires_grad_(False)
    array = dnnsuite.fuse(models)
    assert "dnnsuite::scaled" not in _events(array, torch.randn(3, 4, 3, SIDE, SIDE))
    with torch.no_grad():
        y = array(torch.randn(3, 4, 3, SIDE, SIDE))
    assert y.shape == (3, 4, SIDE, SIDE, 40)


def test_a_factor_that_is_written_into_is_noticed():
    array = dnnsuite.fuse([Written() for _ in range(3)])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        array(torch.randn(3, 4, 3, SIDE, SIDE)).sum().backward()
