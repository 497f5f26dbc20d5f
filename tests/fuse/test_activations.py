# SPDX-License-Identifier: MIT
"""Activations of ours in arrays: in users' code, in containers, in place, under a StepRunner, as separate models."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dnnsuite
from dnnsuite import optim


class Coded(nn.Module):
    """Functions and methods in a user's code, positional and named settings, and gradients of gradients."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 64)
        self.softplus, self.tanh = nn.Softplus(2.0), nn.Tanh()

    def forward(self, x):
        h = torch.tanh(self.first(x))
        h = h + F.elu(self.second(h), 0.5) + F.mish(h) + self.softplus(h).tanh()
        h = F.gelu(h, approximate="tanh") * F.softplus(h, beta=2) - F.selu(h)
        h = F.elu(self.tanh(h) * 1.0, alpha=2.0, inplace=True)
        return h.square().mean()


class Physics(nn.Module):
    """A net whose loss is a gradient by its input."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x):
        t = x[:, :1].clone().requires_grad_()
        y = self.net(t)
        (dy,) = torch.autograd.grad(y.sum(), t, create_graph=True)
        return (dy + y).square().mean()


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(16, 64),
            nn.Tanh(),
            nn.Linear(64, 64),
            nn.GELU("tanh"),
            nn.Mish(),
            nn.ELU(0.3),
            nn.SELU(),
            nn.Softplus(),
            nn.ELU(inplace=True),
        )

    def forward(self, x):
        return self.net(x).square().mean()


def contained():
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.ELU(0.3), nn.Mish())


def trained_alone(models, x, steps):
    for model in models:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()
    return [torch.cat([p.detach().flatten() for p in m.parameters()]) for m in models]


@pytest.mark.parametrize("make", [Coded, Physics, Listed, contained])
@pytest.mark.parametrize("way", ["by hand", "runner"])
def test_models_are_trained_as_alone(make, way):
    torch.manual_seed(0)
    models = [make() for _ in range(3)]
    x = torch.randn(256, 16)
    wanted = trained_alone(copy.deepcopy(models), x, 12)
    array = dnnsuite.fuse(models)
    opt = optim.SGD(array.parameters(), lr=0.1)
    batch = dnnsuite.stack(x, B=3)

    def losses(array, batch):
        return array(batch).square().reshape(array.B, -1).mean(1)

    if way == "runner":
        with dnnsuite.StepRunner(array, opt, losses, threads=1) as runner:
            for _ in range(12):
                runner.step(batch)
            assert runner.mode == "captured"
    else:
        for _ in range(12):
            opt.zero_grad()
            losses(array, batch).sum().backward()
            opt.step()
    for model, parameters in zip(dnnsuite.unfuse(array), wanted, strict=True):
        got = torch.cat([p.detach().flatten() for p in model.parameters()])
        torch.testing.assert_close(got, parameters, rtol=1e-4, atol=1e-5)
