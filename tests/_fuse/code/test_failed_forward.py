# SPDX-License-Identifier: MIT
"""A first forward that ends in an error of the user's: the array is as before, and trains on as separate models."""

import random

import numpy as np
import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim

B, STEPS = 3, 4


class Meter:
    def __init__(self):
        self.count, self.past, self.sum = 0, [], np.zeros(1)

    def tick(self):
        self.count += 1
        self.past.append(self.count)
        self.sum += 1


class Tail(torch.nn.Module):
    """Takes batches of five rows; has changed state of each kind when others fail."""

    def __init__(self):
        super().__init__()
        self.norm, self.layer, self.meter = torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2), Meter()
        self.register_buffer("seen", torch.zeros(2))
        self.calls, self.log = 0, {"a": [0]}

    def forward(self, x):
        self.calls += 1
        self.log["a"].append(self.calls)
        self.meter.tick()
        self.seen += 1
        return self.layer(self.norm(x)[:, : 4 if x.shape[0] == 5 else 3]) / self.calls


class Draws(Tail):
    def forward(self, x):
        return super().forward(x) * (1 + 0 * random.random() * np.random.rand())


class Raises(Tail):
    def forward(self, x):
        if super().forward(torch.cat([x, x])[:5]).shape[0] != x.shape[0]:
            raise ValueError("rows are missing")
        return super().forward(x)


class Writes(Tail):
    def forward(self, x):
        self.layer.weight.data.mul_(0.9)
        return super().forward(x)


class Within(torch.nn.Module):
    """The part that fails is within another, which has state, too."""

    def __init__(self):
        super().__init__()
        self.tail, self.norm, self.calls = Tail(), torch.nn.BatchNorm1d(4), 0

    def forward(self, x):
        self.calls += 1
        return self.tail(self.norm(x)) / self.calls


KINDS = [Tail, Draws, Raises, Writes, Within]


def made(kind):
    torch.manual_seed(0)
    return [kind().double() for _ in range(B)]


def python_state(model):
    return [
        (m.calls, getattr(m, "log", None), repr(vars(m.meter)) if isinstance(m, Tail) else None)
        for m in model.modules()
        if hasattr(m, "calls")
    ]


def squares(model, x):
    return model(x).square().mean((-1, -2))


def step_of_a_runner(array, optimizer, x):
    with StepRunner(array, optimizer, squares, threads=1) as runner:
        runner.step(x).losses()


def fail(array, optimizer, x, threads):
    with pytest.raises((RuntimeError, ValueError), match=r"cannot be multiplied|rows are missing"):
        step_of_a_runner(array, optimizer, x) if threads else array(x)


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_state_is_as_before(kind, threads):
    models = made(kind)
    array = dnnsuite.fuse(made(kind))
    random.seed(1)
    np.random.seed(1)
    numbers, others = random.getstate(), np.random.get_state()[2]
    before = {name: value.clone() for name, value in array.state_dict().items()}
    fail(array, optim.SGD(array.parameters(), lr=0.1), torch.randn(B, 4, 4, dtype=torch.float64), threads)
    for name, value in array.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert (random.getstate(), np.random.get_state()[2]) == (numbers, others)
    for mine, theirs in zip(dnnsuite.unfuse(array), models, strict=True):
        assert python_state(mine) == python_state(theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_as_separate_models(kind):
    array, batches = dnnsuite.fuse(made(kind)), torch.randn(STEPS, B, 5, 4, dtype=torch.float64)
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    fail(array, optimizer, torch.randn(B, 4, 4, dtype=torch.float64), 0)
    found = []
    for x in batches:
        losses = squares(array, x)
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        found.append(losses.detach())
    for index, model in enumerate(made(kind)):
        own = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, x in enumerate(batches):
            loss = squares(model, x[index])
            own.zero_grad()
            loss.backward()
            own.step()
            torch.testing.assert_close(found[step][index], loss.detach())
