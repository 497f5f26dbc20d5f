# SPDX-License-Identifier: MIT
"""What a user changes between two steps, and what a forward leaves in its model, against separate models in float64."""

import collections
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite import StepRunner, optim

B, STEPS = 3, 12
LR = [0.05, 0.02, 0.08]


class Config:
    __slots__ = ("weight",)

    def __init__(self):
        self.weight = 1.0


class Model(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.act, self.b = torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2)
        self.register_buffer("shift", torch.zeros(4))
        self.config, self.scales, self.queue = Config(), np.array([1.0]), collections.deque([1.0], maxlen=2)
        self.factors, self.left, self.mean, self.count = torch.ones(4), None, 1.0, 0

    def loss(self, x, y):
        hidden = self.act(self.a(x * self.factors - self.shift))
        scale = self.config.weight * float(self.scales.sum()) * sum(self.queue)
        return F.mse_loss(self.b(hidden), y) * scale

    def forward(self, x, y):
        return self.loss(x, y)


class Carried(Model):
    def forward(self, x, y):
        before = 0.0 if self.left is None else self.left
        self.left = self.a(x).detach().mean(0)
        return self.loss(x, y) + (self.a.bias * before).sum()


class OwnMean(Model):
    def forward(self, x, y):
        loss = self.loss(x, y)
        self.mean = 0.9 * self.mean + 0.1 * loss.item()
        return loss / self.mean


class Averaged(Model):
    def forward(self, x, y):
        self.count += 1
        if self.count % 3 == 0:
            self.shift = self.shift + (self.a.weight.detach().mean(0) - self.shift) / self.count
        return self.loss(x, y)


def clamp(model):
    for parameter in model.parameters():
        parameter.data.clamp_(-0.2, 0.2)


def other_buffer(model):
    shape = (B, 4) if hasattr(model, "B") else (4,)
    model.shift = torch.full(shape, 0.3, dtype=torch.float64)


CHANGES = {
    "another module": (Model, lambda model: setattr(model, "act", torch.nn.Tanh())),
    "another buffer": (Model, other_buffer),
    "parameters": (Model, clamp),
    "a parameter": (Model, lambda model: model.a.weight.data.mul_(0.5)),
    "slots": (Model, lambda model: setattr(model.config, "weight", 3.0)),
    "an array": (Model, lambda model: model.scales.__setitem__(0, 2.0)),
    "a queue": (Model, lambda model: model.queue.append(2.0)),
    "a tensor": (Model, lambda model: model.factors.mul_(2.0)),
    "what a forward left": (Carried, lambda model: setattr(model, "left", None)),
    "each model's own number": (OwnMean, lambda model: setattr(model, "mean", 1.0)),
    "nothing": (Averaged, lambda model: None),
}
RUNS = {"direct": None, "single": {"width": 1, "threads": 1}, "threads": {"width": 2, "threads": 2}}


def data():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(STEPS, B, 6, 6, generator=generator, dtype=torch.float64).split([4, 2], dim=-1)


def separate(make, change):
    found = []
    for index in range(B):
        model = make(index).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=LR[index], momentum=0.9)
        for step, x, y in zip(itertools.count(), *data(), strict=False):
            if step in (5, 8):
                change(model)
            optimizer.zero_grad()
            loss = model(x[index], y[index])
            loss.backward()
            optimizer.step()
            found.append(loss.detach())
    return torch.stack(found).view(B, STEPS).t()


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", CHANGES)
def test_an_array_follows(name, run):
    make, change = CHANGES[name]
    array = dnnsuite.fuse([make(index).double() for index in range(B)])
    optimizer = optim.SGD(array.parameters(), lr=LR, momentum=0.9)
    runner = None if run == "direct" else StepRunner(array, optimizer, lambda part, *b: part(*b), **RUNS[run])
    losses = []
    for step, x, y in zip(itertools.count(), *data(), strict=False):
        if step in (5, 8):
            change(array)
        if runner is not None:
            losses.append(runner.step(x, y))
            continue
        optimizer.zero_grad()
        loss = array(x, y)
        loss.sum().backward()
        optimizer.step()
        losses.append(loss.detach())
    if runner is not None:
        losses = [step.losses() for step in losses]
        runner.close()
    torch.testing.assert_close(torch.stack(losses), separate(make, change), rtol=1e-9, atol=1e-11)
