# SPDX-License-Identifier: MIT
"""Shards whose models hold other values than those of another shard: a recording of one serves the other only where the
code goes the same way."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim

STEPS = 14


class Net(torch.nn.Module):
    def __init__(self, own):
        super().__init__()
        self.body, self.norm, self.out = torch.nn.Linear(5, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)
        self.own = own

    def forward(self, x):
        return self.out(self.norm(self.body(self.ahead(x))).relu())

    def ahead(self, x):
        return x


class Scales(Net):
    """A number of each model decides."""

    def forward(self, x):
        return super().forward(x) * (3.0 if self.own else 1.0)


class SetsALayersNumber(Net):
    """A number of each model decides on one of a layer of torch's."""

    def ahead(self, x):
        if self.own:
            self.norm.eps = 0.5
        return x


class SetsALayersMode(Net):
    def ahead(self, x):
        if self.own:
            self.norm.eval()
        return x


class SetsByTheBatch(Net):
    """A layer's number is set once the batch says so, at another step in each model, and stays."""

    def ahead(self, x):
        if bool(x.sum() > 0):
            self.norm.momentum = 0.5
        return x


def loss_of(model, x):
    return model(x).square().flatten(1).mean(1)


def trained_alone(models, batches):
    losses = []
    for index, model in enumerate(models):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses.append([])
        for x in batches:
            loss = model(x[index]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    return torch.tensor(losses, dtype=torch.float64).T, [model.state_dict() for model in models]


@pytest.mark.parametrize(
    ("own", "threads"), [((0, 0, 1, 1), 1), ((0, 0, 1, 1), 2), ((0, 1, 0, 1), 2), ((1, 1, 1, 1), 1)]
)
@pytest.mark.parametrize("kind", [Scales, SetsALayersNumber, SetsALayersMode, SetsByTheBatch])
def test_models_of_shards_that_go_other_ways_train_as_alone(kind, own, threads):
    models = []
    for index, value in enumerate(own):
        torch.manual_seed(index)
        models.append(kind(value).double())
    torch.manual_seed(7)
    batches = torch.randn(STEPS, len(own), 8, 5, dtype=torch.float64)
    expected, states = trained_alone(copy.deepcopy(models), batches)
    array = dnnsuite.fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    with StepRunner(array, optimizer, loss_of, threads=threads, width=2) as runner:
        found = torch.stack([runner.step(x).losses().double() for x in batches])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    for index, state in enumerate(states):
        for name, value in array.model_state_dict(index).items():
            torch.testing.assert_close(value, state[name], rtol=1e-9, atol=1e-11, msg=f"{name} of model {index}")
