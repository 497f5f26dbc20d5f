# SPDX-License-Identifier: MIT
"""Numbers that change from step to step are inputs of a captured step: as separate models have them, to the end."""

import math
import types

import numpy as np
import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from helpers import make_models

B, STEPS = 2, 26
SCHEDULE = types.SimpleNamespace(step=0, beta=0.5, weights={"kl": 0.25, "l1": [0.5]})
TEMPERATURE = 2.0


class Net(torch.nn.Module):
    """Net whose code reads numbers in many ways."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)
        self.beta, self.t, self.table = 0.5, 3, {"scale": 1.5}

    def forward(self, x):
        return self.second(self.mixed(self.first(x)))

    def mixed(self, h):
        return h.tanh() * self.beta


class Counting(Net):
    def mixed(self, h):
        self.t += 1
        return h.tanh() * min(1.0, self.t / 15)


class Annealed(Net):
    def mixed(self, h):
        cosine = 0.5 * (1 + math.cos(math.pi * self.t / 40))
        return torch.lerp(h, h.relu(), 0.3) * cosine + h.clamp(max=1 / (1 + self.t)) / self.table["scale"]


class Decaying(Net):
    def mixed(self, h):
        rate = 1 - 0.9**self.t
        return torch.add(h, h.sigmoid(), alpha=rate) - rate * np.exp(-self.t / 10)


class Looking(Net):
    """Numbers decide by what they are when rounded, and which of a few others is taken."""

    def mixed(self, h):
        wide = 4 + int(self.t > 11)
        factor = (0.5, 0.7, 0.9)[int(self.t / 9)] + math.copysign(0.25, self.t - 5)
        return torch.cat([h[..., :wide].tanh(), h[..., wide:]], -1) * factor * abs(self.t % 6 - 2.5)


class Phased(Net):
    """Another formula from some step on, chosen by a number that changes in each."""

    def mixed(self, h):
        return h.relu() * self.beta if self.t < 12 else h.tanh() / self.beta


class Wrapping(Net):
    def mixed(self, h):
        self.t = 2 if self.t >= 6 else self.t + 1
        return h.tanh() * (self.t / 7)


def plain_loss(model, x):
    return model(x).square().flatten(1).mean(1)


def weighted_loss(model, x):
    y = model(x)
    kl = SCHEDULE.weights["kl"] * y.abs().flatten(1).mean(1)
    return (y / TEMPERATURE).square().flatten(1).mean(1) * SCHEDULE.beta + kl + SCHEDULE.weights["l1"][0] * kl


def warmed_loss(model, x):
    SCHEDULE_NOW = min(1.0, SCHEDULE.step / 10) if SCHEDULE.step > 4 else 0.1
    return plain_loss(model, x) * SCHEDULE_NOW


def count(step, model):
    model.t = step


def anneal(step, model):
    model.t, model.beta = step, 0.99**step
    model.table["scale"] = 1.0 + 1 / (step + 3)


def weigh(step, model):
    SCHEDULE.beta, SCHEDULE.weights["kl"], SCHEDULE.weights["l1"][0] = 0.98**step, 1 / (step + 2), step * 0.1
    globals()["TEMPERATURE"] = 1 + 0.3**step


def advance(step, model):
    SCHEDULE.step = step


def nothing(step, model):
    pass


CASES = [
    (Net, plain_loss, anneal),
    (Annealed, plain_loss, anneal),
    (Decaying, plain_loss, count),
    (Phased, plain_loss, anneal),
    (Looking, plain_loss, count),
    (Counting, plain_loss, nothing),
    (Wrapping, plain_loss, nothing),
    (Net, weighted_loss, weigh),
    (Counting, weighted_loss, weigh),
    (Net, warmed_loss, advance),
]


def separate(make, loss, between, data):
    models = [model.double() for model in make_models(make, B)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
    losses = []
    for step, x in enumerate(data):
        for model, optimizer, own in zip(models, optimizers, x, strict=True):
            between(step, model)
            optimizer.zero_grad()
            losses.append(loss(model, own[None])[0])
            losses[-1].backward()
            optimizer.step()
    return torch.stack(losses).detach().view(-1, B), models[0]


def train(make, loss, between, data, **options):
    array = dnnsuite.fuse([model.double() for model in make_models(make, B)])
    losses, modes = [], []
    optimizer = optim.Adam(array.parameters(), lr=0.01)
    with StepRunner(array, optimizer, one_by_one(loss), **options) as runner:
        for step, x in enumerate(data):
            between(step, array)
            losses.append(runner.step(x))
            modes.append(runner.mode)
        losses = [step.losses() for step in losses]
    return torch.stack(losses), modes, array


def one_by_one(loss):
    return lambda array, x: loss(array, x)


@pytest.mark.parametrize(("width", "threads"), [(2, 1), (1, 2)])
@pytest.mark.parametrize(("make", "loss", "between"), CASES)
def test_numbers_are_those_of_each_step(make, loss, between, width, threads):
    data = torch.randn(STEPS, B, 5, 4, dtype=torch.float64)
    expected, model = separate(make, loss, between, data)
    losses, modes, array = train(make, loss, between, data, width=width, threads=threads)
    torch.testing.assert_close(losses, expected)
    assert modes[-1] == "captured", modes
    assert modes.count("captured") >= STEPS // 3, modes
    assert [own.t for own in dnnsuite.unfuse(array)] == [model.t] * B


class Reading(Net):
    def mixed(self, h):
        return h.tanh() * float(self.beta)


class Raising(Net):
    def mixed(self, h):
        return h.sigmoid() ** self.beta


class Deciding(Net):
    """C would look at the number unseen."""

    def mixed(self, h):
        return h.tanh() * (2 if type(self.beta) is float else 3) * self.beta


@pytest.mark.parametrize("make", [Reading, Raising, Deciding])
def test_numbers_that_cannot_be_followed_are_read_as_written_with_a_reason(make):
    data = torch.randn(40, B, 2, 4, dtype=torch.float64)
    expected, _ = separate(make, plain_loss, anneal, data)
    losses, modes, _ = train(make, plain_loss, anneal, data, width=B, threads=1)
    torch.testing.assert_close(losses, expected)
    assert modes[-1].startswith("eager: ")
    assert " at test_numbers.py:" in modes[-1]


def test_numbers_may_stay_for_a_while_and_change_their_type():
    def between(step, model):
        model.t, model.beta = step // 8, (0.5, 1.0, 2, 0.0, np.float64(0.25), 3)[step // 5 % 6]

    data = torch.randn(60, B, 2, 4, dtype=torch.float64)
    expected, _ = separate(Net, plain_loss, between, data)
    losses, modes, _ = train(Net, plain_loss, between, data, width=B, threads=1)
    torch.testing.assert_close(losses, expected)
    assert modes[-1] == "captured"


def test_the_users_numbers_are_there_after_each_step():
    """Nothing of what stands in for them is left in the models, in closures or in Python's module math."""
    factor, exp = [0.5], math.exp
    array = dnnsuite.fuse(make_models(Annealed, B))
    optimizer = optim.SGD(array.parameters(), lr=0.01)

    def loss(part, x):
        return plain_loss(part, x) * factor[0]

    with StepRunner(array, optimizer, loss, width=B, threads=1) as runner:
        for step in range(10):
            factor[0] *= 0.9
            anneal(step, array)
            runner.step(torch.randn(B, 5, 4)).losses()
            assert type(factor[0]) is float
            assert type(array.t) is int
            assert type(array.table["scale"]) is float
            assert math.exp is exp
        assert runner.mode == "captured"


def test_a_step_under_way_has_the_numbers_of_its_call():
    """With several threads the caller goes on, and changes numbers, while steps are under way."""
    factor = [0.5]
    data = torch.randn(30, B, 64, 4, dtype=torch.float64)

    def run(threads):
        array = dnnsuite.fuse([model.double() for model in make_models(Net, B)])
        optimizer = optim.SGD(array.parameters(), lr=0.1)
        losses = []

        def loss(part, x):
            return plain_loss(part, x) * factor[0]

        with StepRunner(array, optimizer, loss, width=1, threads=threads) as runner:
            for step, x in enumerate(data):
                factor[0] = 0.5 if step < 12 else 0.9**step
                losses.append(runner.step(x))
            return torch.stack([one.losses() for one in losses])

    torch.testing.assert_close(run(2), run(1))


class Variational(torch.nn.Module):
    """Looks into its batch and into its results, draws, counts, and reads a number."""

    def __init__(self):
        super().__init__()
        self.mean, self.scale, self.drop = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3), torch.nn.Dropout(0.3)
        self.weight, self.t = 0.1, 0

    def forward(self, x):
        self.t += 1
        drawn = torch.distributions.Normal(self.mean(x), self.scale(x).exp())
        z = self.drop(drawn.rsample())
        if (x > -9).all():
            z = z * 2
        standard = torch.distributions.Normal(0.0, 1.0)
        kl = torch.distributions.kl_divergence(drawn, standard).mean()
        return z.square().mean() * min(1.0, self.t / 15) + self.weight * kl


@pytest.mark.parametrize(("width", "threads", "accumulate"), [(2, 1, 1), (1, 2, 1), (2, 1, 2)])
def test_numbers_beside_values_that_python_reads(width, threads, accumulate):
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(STEPS, B, 6, 4, generator=generator)
    data[::3, :, 0] = -10.0

    def run(capture):
        array = dnnsuite.fuse(make_models(Variational, B), seeds=range(B))
        optimizer = optim.Adam(array.parameters(), lr=0.01)
        options = {"width": width, "threads": threads, "accumulate": accumulate, "capture": capture}
        with StepRunner(array, optimizer, lambda part, x: part(x), **options) as runner:
            losses = []
            for step, x in enumerate(data):
                array.weight = 0.1 + 0.01 * step
                losses.append(runner.step(x).losses().clone())
            return torch.stack(losses), runner.mode, array.t

    (written, _, count), (captured, mode, same_count) = run(False), run(True)
    assert torch.equal(written, captured)
    assert (mode, same_count) == ("captured", count)
