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
    __slots__ = ("k",)

    def __init__(self):
        self.k = 1.0


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

    def factor(self):
        scale = self.config.k * self.slots.k * self.space.inner[0].k * float(self.array[0])
        return scale * self.queue[-1] * self.pair[0][0] * self.tensors["w"] * self.tensor

    def forward(self, x):
        return self.table["act"](self.layer(x) / (1 + float(x.abs().mean()))) * self.factor()


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
}


@pytest.mark.parametrize("how", ["by hand", "threads=1", "threads=2", "whole"])
@pytest.mark.parametrize("name", CHANGES)
def test_models_one_by_one_follow(name, how):
    models = make_models(Holding, 3)
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
