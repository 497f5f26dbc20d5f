# SPDX-License-Identifier: MIT
import collections
import dataclasses
import types

import numpy as np
import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from helpers import make_models


class Slots:
    __slots__ = ("k", "w")

    def __init__(self):
        self.k, self.w = 1.0, [torch.ones(4)]


@dataclasses.dataclass
class Config:
    k: float = 1.0


class Holding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.table, self.config, self.slots = {"act": torch.tanh}, Config(), Slots()
        self.space = types.SimpleNamespace(inner=[types.SimpleNamespace(k=1.0)])
        self.tensors, self.tensor, self.array = {"w": torch.ones(4)}, torch.ones(4), np.ones(4)
        self.queue, self.pair = collections.deque([1.0], maxlen=2), ([1.0], "x")
        self.parts, self.last = (torch.ones(4), [{"deep": (torch.ones(4),)}]), collections.deque([torch.ones(4)])

    def factor(self):
        scale = self.config.k * self.slots.k * self.space.inner[0].k * float(self.array[0])
        of_tensors = self.slots.w[0] * self.parts[0] * self.parts[1][0]["deep"][0] * self.last[0]
        return scale * self.queue[-1] * self.pair[0][0] * self.tensors["w"] * self.tensor * of_tensors

    def forward(self, x):
        return self.table["act"](self.layer(x) / (1 + float(x.abs().mean()))) * self.factor()


class Captured(Holding):
    def forward(self, x):
        return self.table["act"](self.layer(x)) * self.factor()


CHANGES = {
    "a table of functions": lambda one: one.table.update(act=torch.sin),
    "a dataclass": lambda one: setattr(one.config, "k", 2.0),
    "slots": lambda one: setattr(one.slots, "k", 2.0),
    "an object in a list in an object": lambda one: setattr(one.space.inner[0], "k", 2.0),
    "a dictionary of tensors": lambda one: one.tensors.update(w=torch.full((4,), 2.0)),
    "a tensor in a dictionary": lambda one: one.tensors["w"].mul_(2),
    "a tensor": lambda one: one.tensor.mul_(2),
    "an array": lambda one: one.array.__setitem__(0, 2.0),
    "a queue": lambda one: one.queue.append(2.0),
    "a list in a tuple": lambda one: one.pair[0].__setitem__(0, 2.0),
    "a tensor in a tuple": lambda one: one.parts[0].mul_(2),
    "a tensor in a tuple deep inside": lambda one: one.parts[1][0]["deep"][0].mul_(2),
    "a tensor in slots": lambda one: one.slots.w[0].mul_(2),
    "a tensor in a queue": lambda one: one.last[0].mul_(2),
}


WAYS = [(Holding, "by hand"), (Holding, "threads=2"), (Holding, "whole"), (Captured, "threads=1")]


@pytest.mark.parametrize(("kind", "how"), WAYS)
@pytest.mark.parametrize("name", CHANGES)
def test_models_follow(name, kind, how):
    models = make_models(kind, 3)
    array = dnnsuite.fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    options = {"threads=1": {"threads": 1}, "threads=2": {"threads": 2}, "whole": {"threads": 1, "width": 3}}

    def loss(part, x):
        return part(x).square().mean((1, 2))

    runner = None if how == "by hand" else StepRunner(array, optimizer, loss, **options[how])
    own = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for step in range(6):
        if step == 3:
            for one in (array, *models):
                CHANGES[name](one)
        x = torch.randn(3, 5, 4)
        if runner is None:
            optimizer.zero_grad()
            found = loss(array, x)
            found.sum().backward()
            optimizer.step()
        else:
            found = runner.step(x).losses()
        for index, (model, one) in enumerate(zip(models, own, strict=True)):
            one.zero_grad()
            expected = model(x[index]).square().mean()
            expected.backward()
            one.step()
            torch.testing.assert_close(found[index], expected)
    if runner is not None:
        runner.close()


class Counting(torch.nn.Module):
    def __init__(self, own):
        super().__init__()
        self.layer, self.own, self.meter = torch.nn.Linear(4, 4), own, types.SimpleNamespace(count=0)

    def forward(self, x):
        self.meter.count += 1
        return self.layer(x / (1 + float(x.abs().mean()))) * self.own[0] * self.meter.count


@pytest.mark.parametrize("differ", [False, True])
def test_an_object_that_is_set_in_all_models_is_each_ones_own(differ):
    models = [Counting([1.0 + index * differ]) for index in range(3)]
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 5, 4)
    for _ in range(2):
        for one in (array, *models):
            one.meter = types.SimpleNamespace(count=0)
        for _ in range(2):
            found = array(x)
            for index, model in enumerate(models):
                torch.testing.assert_close(found[index], model(x[index]))
