# SPDX-License-Identifier: MIT
"""Steps that run Python compute with the array itself: what each model has of its own is the array's at any time."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite._fuse import run_in_a_loop
from dnnsuite.errors import InvalidArgument
from helpers import make_models
from trained_models import check_trained


def average(block, y):
    block.average = 0.9 * block.average + 0.1 * float(y.detach().abs().mean())
    return y / (1 + block.average)


def best(block, y):
    now = y.detach().square().mean().item()
    block.average = min(now, block.average or now)
    block.worse = 0 if now == block.average else getattr(block, "worse", 0) + 1
    return y * (1 + 0.1 * block.worse)


class Averaged(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.average = torch.nn.Linear(4, 4), 0.0

    def forward(self, x):
        return average(self, self.inner(x))


class Best(Averaged):
    def forward(self, x):
        return best(self, self.inner(x))


class Blocks(torch.nn.Module):
    """Two blocks whose models run one by one, in a whole that could run all models at once."""

    def __init__(self, kind):
        super().__init__()
        self.blocks, self.norm = torch.nn.ModuleList([kind(), kind()]), torch.nn.LayerNorm(4)

    def forward(self, x):
        for block in self.blocks:
            x = self.norm(block(x))
        return x


def seen(model):
    return [(round(block.average, 9), getattr(block, "worse", 0)) for block in model.blocks]


@pytest.mark.parametrize("steps", [5, 9])  # eager ones, a loop over whole models or over those of blocks
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", [Averaged, Best])
def test_what_each_model_has_is_there_after_eager_steps_in_which_nobody_looked(kind, threads, steps):
    check_trained(lambda: Blocks(kind), B=3, seen=seen, steps=steps, threads=threads)


@pytest.mark.parametrize("kind", [Averaged, Best])
def test_what_each_model_has_follows_it_from_loops_over_parts_to_those_over_the_whole_and_back(kind):
    separate = make_models(lambda: Blocks(kind), 3, torch.float64)
    array = dnnsuite.fuse(make_models(lambda: Blocks(kind), 3, torch.float64))
    steps = iter(torch.randn(12, 3, 6, 4, dtype=torch.float64))
    for loop in (False, True, True, False, True, False):
        run_in_a_loop(array, loop)
        for x in (next(steps), next(steps)):
            expected = torch.stack([model(one) for model, one in zip(separate, x, strict=True)])
            torch.testing.assert_close(array(x), expected)
        assert [seen(array[i]) for i in range(3)] == [seen(model) for model in separate]
        copy.deepcopy(array)  # gives the models what their code has left in them


class Late(torch.nn.Module):
    """Makes an attribute in its first step."""

    def __init__(self):
        super().__init__()
        self.layer, self.highest = torch.nn.Linear(4, 4), 0.0

    def forward(self, x):
        y = self.layer(x)
        self.highest = max(self.highest, y.detach().abs().max().item())
        self.late = getattr(self, "late", 0) + 1
        return y * (1 + 0.1 * self.late)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_step_has_made_may_be_set_after_it(threads, width):
    def between(model):
        model.late = 3

    check_trained(Late, B=3, between=between, seen=lambda model: model.late, threads=threads, width=width)


class Scheduled(torch.nn.Module):
    """Sets modes of training and numbers of its layers as it counts its steps."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.last = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
        self.count = 0

    def forward(self, x):
        self.count += 1
        if self.count == 3:
            self.norm.momentum = 0.5
        if self.count == 5:
            self.last.eval()
        return self.last(self.norm(self.layer(x)))


@pytest.mark.parametrize(("threads", "width"), [(1, 1), (2, None), (2, 3)])
def test_modes_and_numbers_of_layers_that_a_forward_sets_in_shards_are_the_arrays_too(threads, width):
    def seen(model):
        return [module.training for module in model.modules()], model.norm.momentum, model.count

    check_trained(Scheduled, B=3, seen=seen, steps=9, threads=threads, width=width)


class SetByValue(Scheduled):
    def forward(self, x):
        if x.mean() > 0:
            self.norm.eps = 0.5
        return self.norm(self.layer(x))


def test_a_number_of_a_layer_that_differs_from_model_to_model_is_refused():
    array = dnnsuite.fuse(make_models(SetByValue, 2, torch.float64))
    x = torch.stack([torch.rand(6, 4), -torch.rand(6, 4)]).double()
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    loss = lambda array, x: array(x).square().flatten(1).mean(1)  # noqa: E731
    refused = pytest.raises(InvalidArgument, match="the forward sets eps of norm, to another value")
    with dnnsuite.StepRunner(array, optimizer, loss, threads=2, width=1) as runner, refused:
        runner.step(x)
