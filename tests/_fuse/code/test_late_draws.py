# SPDX-License-Identifier: MIT
"""Code that begins to draw random numbers after some calls: each model draws its own from the first time on."""

import random
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite._fuse.code.late_draws import (
    handles_gradients,
    may_look_later,
    may_write_parameters,
    names_other_generators,
    names_that_draw,
    reachable,
)
from dnnsuite.errors import InvalidArgument


def noise(n):
    return torch.randn(n)


def xavier(x):
    weight = torch.empty(4, 4)
    torch.nn.init.xavier_uniform_(weight)
    return weight[0]


def without_gradients(x):
    with torch.no_grad():
        return torch.randn(4)


class Prepared(torch.nn.Module):
    def __init__(self, prepare):
        super().__init__()
        self.fc, self.prepare = torch.nn.Linear(4, 4), prepare

    def forward(self, x):
        with torch.no_grad():
            self.prepare(self, x)
        return self.fc(x)


def halve(weight):
    weight *= 0.5


def fill(weight):
    weight[0] = 1.0


WRITES = {
    "in place": lambda self, x: self.fc.weight.mul_(2),
    "many": lambda self, x: torch._foreach_mul_([self.fc.weight], 2),
    "operator": lambda self, x: halve(self.fc.weight),
    "part": lambda self, x: fill(self.fc.weight),
    "out": lambda self, x: torch.add(self.fc.weight, 1, out=self.fc.weight),
    "data": lambda self, x: torch.Tensor.set_(self.fc.weight.data, x),
    "vector": lambda self, x: torch.nn.utils.vector_to_parameters(x, self.parameters()),
}
READS = {
    "target": lambda self, x: self.fc(x).max(1)[0],
    "noise": lambda self, x: x + torch.randn(4),
    "comprehension": lambda self, x: torch.stack([self.fc(row) for row in x]),
    "counter": lambda self, x: [i + 1 for i in range(3)],
}


@pytest.mark.parametrize("name", WRITES)
def test_code_without_gradients_that_may_write_parameters(name):
    assert may_write_parameters(reachable(Prepared(WRITES[name])))


@pytest.mark.parametrize("name", READS)
def test_code_without_gradients_that_only_reads(name):
    assert not may_write_parameters(reachable(Prepared(READS[name])))


def clears(x):
    x.grad = None
    return x


def thaws(x):
    return x.requires_grad_()


@pytest.mark.parametrize(("function", "handles"), [(clears, True), (thaws, True), (noise, False)])
def test_code_that_handles_gradients(function, handles):
    assert handles_gradients(reachable(Prepared(function))) == handles


HIDDEN = "ran"  # no name that a search finds
GENERATOR = torch.Generator().manual_seed(3)
DRAWS = {
    "helper": lambda x: noise(4),
    "name": lambda x: getattr(torch, "randn")(4),  # noqa: B009
    "in place": lambda x: torch.empty(4).normal_(),
    "gumbel": lambda x: F.gumbel_softmax(torch.zeros(4)),
    "distribution": lambda x: torch.distributions.Normal(0.0, 1.0).sample((4,)),
    "initializer": xavier,
    "out": lambda x: torch.rand(4, out=torch.empty(4)),
    "without gradients": without_gradients,
    "generator of all": lambda x: torch.randn(4, generator=GENERATOR),
    "like": lambda x: torch.randn_like(x),
    "python": lambda x: random.random(),
    "numpy": lambda x: float(np.random.rand()),
}


class Late(torch.nn.Module):
    def __init__(self, draw, after=2):
        super().__init__()
        self.fc, self.draw, self.after, self.calls = torch.nn.Linear(4, 4), draw, after, 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        x = self.fc(x)
        return x + self.draw(x) if self.calls > self.after else x


def alike(draw, after=2, B=3):
    """B models with the same weights: what differs in their outputs was drawn."""
    models = [Late(draw, after) for _ in range(B)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
    return models


def outputs(array, calls=4):
    x = torch.ones(1, 2, 4).expand(3, 2, 4)
    return [
        [len({tuple(o.flatten().tolist()) for o in array(x)}), int(array.seen[0]), array.calls] for _ in range(calls)
    ]


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("after", [0, 2])
def test_each_model_draws_its_own_from_the_first_time_on(draw, after):
    array = dnnsuite.fuse(alike(DRAWS[draw], after))
    found = outputs(array)
    assert [different for different, _, _ in found] == [1] * after + [3] * (4 - after)
    assert [seen for _, seen, _ in found] == [1, 2, 3, 4]


def test_numbers_that_nothing_told_of_are_an_error_once(monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    array = dnnsuite.fuse(alike(lambda x: getattr(torch, HIDDEN + "dn")(4), 1))
    assert outputs(array, 1)[0][0] == 1
    with pytest.raises(InvalidArgument, match="drew random numbers in a way"):
        outputs(array, 1)
    assert outputs(array, 1)[0][0] == 3


def test_where_another_thread_may_have_drawn_it_is_a_warning(monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    array = dnnsuite.fuse(alike(lambda x: getattr(torch, HIDDEN + "dn")(4), 1))
    outputs(array, 1)
    with pytest.warns(UserWarning, match="drew random numbers in a way"):
        outputs(array, 1)


def test_models_draw_what_they_drew_one_after_the_other_from_one_generator_of_python():
    def draw(x):
        return random.random()

    models = alike(draw, 0)
    array = dnnsuite.fuse(models)
    x = torch.ones(3, 2, 4)
    random.seed(5)
    mine = [array(x) for _ in range(3)]
    random.seed(5)
    for output in mine:
        torch.testing.assert_close(output, torch.stack([model(own) for model, own in zip(models, x, strict=True)]))


class Quiet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = torch.nn.Dropout(0.1)
        self.weight = torch.nn.Parameter(torch.zeros(2))
        torch.nn.init.normal_(self.weight)

    def forward(self, x):
        return self.dropout(F.dropout(x, 0.1)) + torch.zeros(2) + self.weight

    def drawing(self):
        return torch.rand(3)


class Calling(Quiet):
    def forward(self, x):
        return super().forward(x) + self.drawing()


def test_only_names_that_a_forward_reaches_count():
    assert not names_that_draw(reachable(Quiet()))
    assert names_that_draw(reachable(Calling())) == {"rand"}
    assert names_that_draw(reachable(torch.nn.Sequential(Quiet(), Calling())))
    assert not names_that_draw(reachable(torch.nn.Sequential(torch.nn.Dropout(0.5))))


def test_to_make_a_model_of_an_array_draws_nothing():
    array = dnnsuite.fuse([torch.nn.Sequential(torch.nn.Linear(2, 2)) for _ in range(2)])
    before = torch.get_rng_state()
    array[1], dnnsuite.unfuse(array)
    assert torch.equal(before, torch.get_rng_state())


class Branching(torch.nn.Module):
    def forward(self, x):
        return x if x.sum().item() > 0 else -x


class Straight(torch.nn.Module):
    def forward(self, x):
        return x * x.sum().item()

    def other(self, x):
        return x if x.dim() > 1 else -x


def test_code_that_may_look_later_names_a_look_in_a_function_with_a_branch():
    assert may_look_later(reachable(Branching()))
    assert not may_look_later(reachable(Straight()))
    assert not may_look_later(reachable(torch.nn.Linear(2, 2)))


class _WithPython(torch.nn.Module):
    def forward(self, x):
        return x * random.random()


class _WithNumpy(torch.nn.Module):
    def forward(self, x):
        return self.noisy(x)

    def noisy(self, x):
        return x + np.random.rand()


class _WithTorch(torch.nn.Module):
    def forward(self, x):
        return x + torch.rand(3)


def test_generators_of_python_and_numpy_are_told_from_torchs():
    assert names_other_generators(reachable(_WithPython()))
    assert names_other_generators(reachable(_WithNumpy()))
    assert names_other_generators(reachable(torch.nn.Sequential(_WithTorch(), _WithNumpy())))
    assert not names_other_generators(reachable(_WithTorch()))
