# SPDX-License-Identifier: MIT
"""Contents of lists, objects and generators that a forward changes: each model's own, whenever shards are made."""

import collections
import copy
import io
import random

import numpy as np
import pandas as pd
import pytest
import torch

import dnnsuite

B = 3


class Base(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2).double()

    def error(self, x, y):
        return torch.nn.functional.mse_loss(self.layer(x), y)


class Counted(Base):
    """Number that goes up by one in each forward."""

    calls = 0

    def forward(self, x, y):
        self.calls += 1
        return self.error(x, y) * (1 + self.calls % 3)


class Listed(Base):
    """List of losses, as floats."""

    def __init__(self):
        super().__init__()
        self.past = []

    def forward(self, x, y):
        loss = self.error(x, y)
        scale = self.past[-1] if self.past else 1.0
        self.past.append(loss.item())
        return loss / scale


class Queued(Base):
    """Queue of tensors; all models run at once."""

    def __init__(self):
        super().__init__()
        self.queue = collections.deque(maxlen=2)

    def forward(self, x, y):
        loss = self.error(x, y)
        total = loss + sum(self.queue) if self.queue else loss
        self.queue.append(self.layer.weight.detach().square().mean())
        return total * loss


class Cached(Base):
    """Dictionary of tensors, filled for each number of samples."""

    def __init__(self):
        super().__init__()
        self.cache = {}

    def forward(self, x, y):
        if len(x) not in self.cache:
            self.cache[len(x)] = x.mean(0)
        return self.error(x - self.cache[len(x)], y)


class Meter:
    def __init__(self):
        self.mean = None

    def update(self, value):
        self.mean = value if self.mean is None else 0.5 * (self.mean + value)


class Metered(Base):
    """Tensor in an object of a user's."""

    def __init__(self):
        super().__init__()
        self.meter = Meter()

    def forward(self, x, y):
        loss = self.error(x, y)
        self.meter.update(loss.detach())
        return loss / self.meter.mean


class Drawn(Base):
    """Generators of its own, of Python and of NumPy."""

    def __init__(self):
        super().__init__()
        seed = int(torch.randint(1000, ()))
        self.choice, self.noise = random.Random(seed), np.random.default_rng(seed)

    def forward(self, x, y):
        return self.error(x.roll(self.choice.randrange(4), 1) * self.noise.random(), y)


class Stored(Base):
    """Counts that C code keeps: an array of NumPy, a series of pandas and a file in memory, all changed in place."""

    def __init__(self):
        super().__init__()
        self.array, self.series, self.file = np.zeros(2), pd.Series([0.0]), io.BytesIO()

    def forward(self, x, y):
        self.array += 1
        self.series[0] += 1
        self.file.write(b".")
        count = self.array[0] + self.series[0] + len(self.file.getvalue())
        return self.error(x, y) * (1 + 0.1 * float(count))


class Log(list):
    """List with an attribute."""

    def __init__(self):
        super().__init__()
        self.name = "losses"


class Logged(Base):
    def __init__(self):
        super().__init__()
        self.log = Log()

    def forward(self, x, y):
        loss = self.error(x, y)
        self.log.append(loss.detach())
        return loss * (1 + 0.1 * len(self.log)) + sum(self.log)


KINDS = [Counted, Listed, Queued, Cached, Metered, Drawn, Stored, Logged]


def made(kind, seed):
    torch.manual_seed(seed)
    return kind()


class Sides:
    """An array and separate models, trained with the same batches and edits."""

    def __init__(self, kind):
        self.kind = kind
        self.models = [made(kind, seed) for seed in range(B)]
        self.array = dnnsuite.fuse([made(kind, seed) for seed in range(B)])
        self.optimizer = dnnsuite.optim.SGD(self.array.parameters(), lr=0.01)
        self.generator = torch.Generator().manual_seed(0)

    def batch(self, samples=4):
        shape = len(self.models), samples
        return [torch.randn(*shape, n, dtype=torch.float64, generator=self.generator).add(1) for n in (4, 2)]

    def expected(self, x, y, train=True):
        losses = [model(*own) for model, own in zip(self.models, zip(x, y, strict=True), strict=True)]
        for model, loss in zip(self.models, losses, strict=True):
            for parameter, gradient in zip(
                model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
            ):
                parameter.data -= 0.01 * train * gradient
        return torch.stack(losses).detach()

    def by_hand(self):
        x, y = self.batch()
        losses = self.array(x, y)
        self.optimizer.zero_grad()
        losses.sum().backward()
        self.optimizer.step()
        torch.testing.assert_close(losses.detach(), self.expected(x, y))

    def steps(self, runner, count=1, samples=4):
        for _ in range(count):
            x, y = self.batch(samples)
            torch.testing.assert_close(runner.step(x, y).losses(), self.expected(x, y))

    def own_sizes(self, runner, count):
        """Take steps in which each model has a number of samples of its own."""
        for _ in range(count):
            parts = [[part[:n] for n, part in enumerate(whole, 2)] for whole in self.batch(2 + len(self.models))]
            torch.testing.assert_close(runner.step(*parts).losses(), self.expected(*parts))

    def runner(self, **options):
        return dnnsuite.StepRunner(self.array, self.optimizer, lambda array, x, y: array(x, y), **options)

    def replace(self):
        self.models[1] = made(self.kind, 7)
        self.array.replace(1, made(self.kind, 7), self.optimizer, lr=0.01)

    def append(self):
        self.models.append(made(self.kind, 8))
        self.array.append(made(self.kind, 8), self.optimizer, lr=0.01)

    def clone(self):
        self.models.append(copy.deepcopy(self.models[0]))
        self.array.clone(0, self.optimizer)

    def drop(self):
        del self.models[1]
        self.array.drop(1, self.optimizer)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("threads", "width"), [(1, None), (2, 1)])
def test_shards_made_again_go_on(kind, threads, width):
    sides = Sides(kind)
    with sides.runner(threads=threads, width=width) as runner:
        sides.steps(runner, 4)
        runner.refresh()
        sides.steps(runner, 2)
        sides.steps(runner, 2, samples=6)
        sides.array.layer.weight.requires_grad_(False)
        sides.array.layer.weight.requires_grad_(True)
        sides.steps(runner, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("threads", "width", "capture"), [(1, None, True), (1, 1, False), (2, 2, True)])
def test_models_with_numbers_of_samples_of_their_own(kind, threads, width, capture):
    sides = Sides(kind)
    with sides.runner(threads=threads, width=width, capture=capture) as runner:
        sides.own_sizes(runner, 3)
        sides.steps(runner, 3)
        sides.own_sizes(runner, 2)
        sides.steps(runner, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edits", ["replace clone drop", "append append"])
def test_edits_between_steps(kind, edits):
    sides = Sides(kind)
    with sides.runner(threads=1) as runner:
        sides.steps(runner, 3)
        for edit in edits.split():
            getattr(sides, edit)()
        sides.steps(runner, 3)
        getattr(sides, edits.split()[0])()
        sides.steps(runner, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edits", ["replace clone drop", "append append"])
def test_edits_by_hand(kind, edits):
    sides = Sides(kind)
    for edit in ["", *edits.split()]:
        if edit:
            getattr(sides, edit)()
        for _ in range(2):
            sides.by_hand()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [None, 2])
def test_steps_by_hand_between_those_of_a_runner(kind, width):
    sides = Sides(kind)
    sides.by_hand()
    with sides.runner(threads=1, width=width) as runner:
        for _ in range(3):
            sides.steps(runner, 2)
            sides.by_hand()
            sides.by_hand()
    sides.by_hand()


@pytest.mark.parametrize("kind", KINDS)
def test_copies_have_what_was_left(kind):
    sides = Sides(kind)
    for _ in range(3):
        sides.by_hand()
    copied, singles = copy.deepcopy(sides.array), dnnsuite.unfuse(sides.array)
    x, y = sides.batch()
    expected = torch.stack([model(*own) for model, own in zip(sides.models, zip(x, y, strict=True), strict=True)])
    torch.testing.assert_close(copied(x, y), expected)
    found = [model(*own) for model, own in zip(singles, zip(x, y, strict=True), strict=True)]
    torch.testing.assert_close(torch.stack(found), expected)


class Summed(Base):
    """Sum of every second loss, or of all, in an attribute or in a dictionary; nothing computes with it."""

    def __init__(self):
        super().__init__()
        self.every, self.logs, self.named = 1, False, False
        self.calls, self.total, self.sums, self.log = 0, 0.0, {"loss": 0.0}, []

    def forward(self, x, y):
        loss = self.error(x, y)
        self.calls += 1
        if self.calls % self.every == 0:
            if self.logs:
                self.log.append(loss.item())
            if self.named:
                self.sums["loss"] += loss.detach()
            else:
                self.total += loss.detach()
        return loss


@pytest.mark.parametrize(("threads", "width"), [(1, None), (2, 1)])
@pytest.mark.parametrize(
    ("every", "logs", "named"), [(1, False, False), (1, True, True), (2, True, False), (2, False, True)]
)
def test_sums_of_losses_are_each_models_own(every, logs, named, threads, width):
    def summed():
        model = Summed()
        model.every, model.logs, model.named = every, logs, named
        return model

    sides = Sides(summed)
    with sides.runner(threads=threads, width=width) as runner:
        sides.steps(runner, 8)
    for index, model in enumerate(sides.models):
        own = sides.array[index]
        found, expected = (own.sums["loss"], model.sums["loss"]) if named else (own.total, model.total)
        torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected))
        assert own.calls == model.calls == 8
        torch.testing.assert_close(torch.tensor(own.log), torch.tensor(model.log))
