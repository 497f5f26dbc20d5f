# SPDX-License-Identifier: MIT
"""Code that can run for all models at once in some steps and not in others, by a counter of its own."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from helpers import assert_near, make_models

B, STEPS = 3, 10


class LazilyPenalised(torch.nn.Module):
    """Penalise slopes every second or third step, as lazy regularisation does."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls, self.every, self.log = torch.nn.Linear(4, 1), 0, 2, []

    def forward(self, x):
        self.calls += 1
        self.log.append(self.calls)
        loss = self.layer(x).square().mean() * len(self.log)
        if self.calls % self.every == 0:
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.layer(x).tanh().sum(), x, create_graph=True)
            loss = loss + slope.square().mean()
        return loss


class Plainly(LazilyPenalised):
    """The same with a counter alone, which recordings take as an input."""

    def forward(self, x):
        self.log = []
        return super().forward(x)


def nothing(array, optimizer):
    pass


def load_optimizer(array, optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def look(array, optimizer):
    assert dict(array.named_parameters())


def trained(kind, every):
    found = []
    for index, model in enumerate(make_models(kind, B, torch.float64)):
        optimizer = torch.optim.SGD(model.parameters(), 0.02)
        model.every = every
        for x in batches():
            optimizer.zero_grad()
            loss = model(x[index])
            loss.backward()
            optimizer.step()
            found.append(loss.detach())
    return torch.stack(found).view(B, STEPS)


def batches():
    torch.manual_seed(3)
    return torch.randn(STEPS, B, 5, 4, dtype=torch.float64)


def made(kind, every):
    array = dnnsuite.fuse(make_models(kind, B, torch.float64))
    array.every = every
    return array, optim.SGD(array.parameters(), lr=0.02)


@pytest.mark.parametrize("kind", [LazilyPenalised, Plainly])
@pytest.mark.parametrize("every", [2, 3])
def test_by_hand(kind, every):
    (array, optimizer), expected = made(kind, every), trained(kind, every)
    for step, x in enumerate(batches()):
        optimizer.zero_grad()
        losses = array(x)
        losses.sum().backward()
        optimizer.step()
        assert_near(losses.detach(), expected[:, step], f"step {step}")
    assert array[1].calls == STEPS


@pytest.mark.parametrize(
    ("kind", "between"),
    [(LazilyPenalised, nothing), (LazilyPenalised, look), (Plainly, load_optimizer), (Plainly, look)],
)
@pytest.mark.parametrize(("threads", "width"), [(1, 3), (2, 1)])
def test_by_a_runner(kind, between, threads, width):
    expected = {every: trained(kind, every) for every in (2, 3)}
    for every, when in [(2, 2), (3, 5)]:
        array, optimizer = made(kind, every)
        with dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x), threads=threads, width=width) as runner:
            for step, x in enumerate(batches()):
                if step == when:
                    between(array, optimizer)
                losses = runner.step(x).losses()
                assert_near(losses, expected[every][:, step], f"every {every}, {when}: step {step}")
        assert [array[index].calls for index in range(B)] == [STEPS] * B


class Momentum(torch.nn.Module):
    """Layer with a slow copy, which the forward moves before it reads a number of its model."""

    def __init__(self, number):
        super().__init__()
        self.quick = torch.nn.Linear(3, 2)
        self.slow = copy.deepcopy(self.quick).requires_grad_(False)
        self.register_buffer("number", torch.tensor(number))

    def forward(self, x):
        with torch.no_grad():
            for new, old in zip(self.quick.parameters(), self.slow.parameters(), strict=True):
                old.data = 0.9 * old.data + 0.1 * new.data
                old.mul_(0.5)
        return int(self.number) * self.quick(x) + self.slow(x)


def test_parameters_that_were_written_before_models_part_ways_are_put_back():
    models = [Momentum(1).double(), Momentum(2).double()]
    array, x = dnnsuite.fuse([copy.deepcopy(model) for model in models]), torch.randn(4, 3).double()
    for _ in range(3):
        truth = torch.stack([model(x) for model in models])
        torch.testing.assert_close(array(dnnsuite.stack(x, 2)), truth)
