# SPDX-License-Identifier: MIT
"""Gradients that a forward takes itself."""

import pytest
import torch
from torch.autograd import Variable

import dnnsuite
from dnnsuite import optim
from helpers import assert_near, make_models

B, N = 3, 5


class Critic(torch.nn.Module):
    """A critic whose methods take gradients of what it judges."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3, stride=2, padding=1),
            torch.nn.LeakyReLU(0.2, inplace=True),
            torch.nn.Conv2d(4, 6, 3),
            torch.nn.Tanh(),
        )
        self.head = torch.nn.Linear(6, 1)

    def judge(self, x):
        return self.head(self.body(x).flatten(1))

    def slope(self, x):
        x = (0.3 * x + 0.7 * x.flip(0)).requires_grad_(True)
        judged = self.judge(x)
        (slope,) = torch.autograd.grad(
            outputs=judged, inputs=x, grad_outputs=torch.ones_like(judged), create_graph=True, retain_graph=True
        )
        return judged.mean() + 10 * ((slope.reshape(len(x), -1).norm(2, dim=1) - 1) ** 2).mean()

    def by_variable(self, x):  # as code before torch 0.4 has it
        real, made = Variable(x), Variable(x.flip(0).data)
        mixed = Variable(0.3 * real.data + 0.7 * made.data, requires_grad=True)
        judged = self.judge(mixed)
        (slope,) = torch.autograd.grad(judged, mixed, torch.ones(judged.size(), dtype=x.dtype), create_graph=True)
        return self.judge(real).mean() + ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()

    def of_one_number(self, x):  # R1, on the batch itself
        x.requires_grad_()
        judged = self.judge(x)
        (slope,) = torch.autograd.grad(judged.sum(), x, create_graph=True)
        return judged.square().mean() + slope.square().sum((1, 2, 3)).mean()

    def of_two(self, x):
        x, y = x.detach().requires_grad_(), x.flip(0).requires_grad_()
        a, b = self.judge(x), self.judge(x * y)
        slopes = torch.autograd.grad([a.sum(), b], [x, y], [None, torch.ones(N, 1, dtype=x.dtype)], create_graph=True)
        return sum(slope.square().mean() for slope in slopes) + b.mean()

    def saliency(self, x):
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(self.judge(x).sum(), x)
        return self.judge(x * slope.detach().abs()).square().mean()

    def unused(self, x):
        x, y = x.clone().requires_grad_(), x.clone().requires_grad_()
        slopes = torch.autograd.grad(self.judge(x).sum(), [x, y], create_graph=True, allow_unused=True)
        return slopes[0].square().mean() if slopes[1] is None else x.sum()

    def by_weights(self, x):
        found = torch.autograd.grad(self.judge(x).square().mean(), self.head.weight, create_graph=True)
        return found[0].square().sum()


FUSED = ["slope", "by_variable", "of_one_number", "of_two", "saliency", "by_weights"]


def batches(steps, shared):
    torch.manual_seed(3)
    for _ in range(steps):
        x = torch.randn(1 if shared else B, N, 2, 6, 6, dtype=torch.float64)
        yield x.expand(B, *x.shape[1:])


def trained_alone(method, shared, steps=3):
    losses = []
    for index, model in enumerate(make_models(Critic, B, torch.float64)):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for batch in batches(steps, shared):
            loss = getattr(model, method)(batch[index].clone())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses).view(B, steps)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("method", [*FUSED, "unused"])
def test_a_gradient_in_a_forward_is_each_models_own(method, shared):
    expected = trained_alone(method, shared)
    array = dnnsuite.fuse(make_models(Critic, B, torch.float64))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    for step, batch in enumerate(batches(3, shared)):
        losses = getattr(array, method)(batch)
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        assert_near(losses.detach(), expected[:, step])
    apart = [cover.reason for cover in array.coverage() if "autograd.grad" in cover.reason]
    assert bool(apart) == (method not in FUSED)


@pytest.mark.parametrize("method", FUSED)
def test_a_gradient_in_a_forward_is_captured(method):
    expected = trained_alone(method, False, 5)
    array = dnnsuite.fuse(make_models(Critic, B, torch.float64))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    with dnnsuite.StepRunner(array, optimizer, lambda array, x: getattr(array, method)(x), threads=1) as runner:
        for step, batch in enumerate(batches(5, False)):
            assert_near(runner.step(batch).losses(), expected[:, step])
        assert runner.mode == "captured"


def test_more_than_one_number_without_factors_is_torchs_error():
    class Wrong(Critic):
        def forward(self, x):
            x = x.clone().requires_grad_()
            return torch.autograd.grad(self.judge(x), x)[0]

    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        dnnsuite.fuse(make_models(Wrong, B, torch.float64))(next(batches(1, False)))
