# SPDX-License-Identifier: MIT
"""Choice between all models at once and a loop over plain torch modules."""

import copy
import dataclasses
import json

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dnnsuite
from dnnsuite._fuse import loop_choice
from dnnsuite._fuse.loop_choice import FUSED, LOOP
from dnnsuite.errors import InvalidArgument
from helpers import make_models

STEPS = 46
pytestmark = pytest.mark.usefixtures("own_answers")


def answers(table):
    """The answers of this choice by key."""
    return {key: table.get(key) for key in json.loads(table.path.read_text()) if "fused or loop" in key}


class Products(TorchDispatchMode):
    """Notes whether a step multiplies model by model."""

    one_by_one = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.one_by_one = self.one_by_one or func is torch.ops.aten.addmm.default
        return func(*args, **(kwargs or {}))


def looped(array, x, backward):
    """Run a step, and return True if it was one of a loop."""
    with Products() as products:
        y = array(x)
    if backward:
        y.sum().backward()
    return products.one_by_one


def test_both_ways_are_tried_in_turns_after_the_first_steps():
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, 4), 3))
    ways = [looped(array, torch.randn(3, 5, 3), backward=True) for _ in range(STEPS)]
    assert ways[:26] == [False] * 18 + [True] * 2 + [False, True] * 3
    assert len(set(ways[42:])) == 1


def test_a_loop_without_backward_is_given_up():
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, 4), 3))
    ways = [looped(array, torch.randn(3, 5, 3), backward=step < 18) for step in range(STEPS)]
    assert (True in ways, ways[:18], ways[-5:]) == (True, [False] * 18, [False] * 5)


class Scaled(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def test_code_of_one_class_and_other_layouts_are_measured_apart(own_answers):
    """What is kept is known by options and memory order as well, not by classes and shapes alone."""
    images = torch.randn(2, 3, 4, 5, 5)
    last = images.movedim(2, -1).contiguous().movedim(-1, 2)
    for factor, x in ((2, images), (2, images), (3, images), (2, last)):
        array = dnnsuite.fuse([Scaled(factor) for _ in range(2)])
        for _ in range(STEPS):
            array(x.requires_grad_()).sum().backward()
    assert len(answers(own_answers)) == 3


class Net(torch.nn.Module):
    """Layers of every kind of state: statistics, random numbers, tied and frozen weights, a buffer written anew."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6)
        self.drop, self.second = torch.nn.Dropout(0.5), torch.nn.Linear(6, 6)
        self.third = torch.nn.Linear(6, 6)
        self.third.weight = self.second.weight
        self.first.bias.requires_grad_(False)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        h = self.drop(torch.relu(self.norm(self.first(x))))
        self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        return self.third(torch.relu(self.second(h))) + self.mean


def forced(array, way):
    loop_choice.run_in_a_loop(array, way == LOOP)
    return array


def train(array, data):
    optimizer = dnnsuite.optim.Adam([p for p in array.parameters() if p.requires_grad], lr=1e-2)
    for x in data:
        optimizer.zero_grad()
        array(x).square().mean((1, 2)).sum().backward()
        optimizer.step()


def test_a_loop_computes_what_all_at_once_do():
    models = [model.double() for model in make_models(Net, 3)]
    data = torch.randn(4, 3, 5, 4, dtype=torch.float64)
    arrays = {way: forced(dnnsuite.fuse(models, seeds=[1, 2, 3]), way) for way in (FUSED, LOOP)}
    for array in arrays.values():
        train(array, data)
    assert loop_choice.loops(arrays[LOOP])
    assert not loop_choice.loops(arrays[FUSED])
    torch.testing.assert_close(arrays[LOOP].state_dict(), arrays[FUSED].state_dict())
    assert list(arrays[LOOP].state_dict()) == list(models[0].state_dict())
    assert arrays[LOOP].first.bias.grad is None


def test_a_loop_follows_what_happens_to_its_array():
    """Edits, modes, attributes, hooks, copies and new tensors: all as if the models ran at once."""
    models, x = make_models(Net, 4), torch.randn(4, 5, 4)
    looped, fused = (forced(dnnsuite.fuse(models, seeds=range(4)), way) for way in (LOOP, FUSED))
    seen = []
    for change in (
        lambda a: None,
        lambda a: a.eval(),
        lambda a: a.drop(1),
        lambda a: a.load_state_dict({k: v + 1 for k, v in a.state_dict().items()}, assign=True),
        lambda a: a.double(),
        lambda a: a.norm.register_forward_hook(lambda *_: seen.append(1)),
    ):
        outputs = []
        for array, way in ((looped, LOOP), (fused, FUSED)):
            change(array)
            forced(array, way)
            outputs.append(array(x[: array.B].to(array.first.weight.dtype)))
        torch.testing.assert_close(*outputs)
    assert seen
    torch.testing.assert_close(copy.deepcopy(looped)(x[:3].double()), looped(x[:3].double()))


def test_gradients_of_inputs_and_of_gradients():
    models = make_models(lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()), 2)
    found = []
    for way in (LOOP, FUSED):
        array = forced(dnnsuite.fuse(models), way)
        x = torch.ones(2, 5, 3, requires_grad=True)
        (grad,) = torch.autograd.grad(array(x).sum(), x, create_graph=True)
        grad.square().sum().backward()
        found.append([x.grad, *(p.grad for p in array.parameters())])
    torch.testing.assert_close(*found)


def test_the_choice_of_an_array_stepped_by_hand_is_in_its_coverage(own_answers):
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()), 3))
    train(array, torch.randn(STEPS, 3, 5, 3))
    ((key, answer),) = answers(own_answers).items()
    own_answers.put(key, dataclasses.replace(answer, way=LOOP))
    again = dnnsuite.fuse(unfused := dnnsuite.unfuse(array))
    again(torch.randn(3, 5, 3)).sum().backward()
    (cover,) = again.coverage()
    assert (cover.how, cover.name) == ("per model", "")
    assert f"{LOOP} {1e3 * answer.seconds[LOOP][0]:.3g} ms" in cover.reason
    assert cover.cost_s > 0
    assert len(unfused) == 3
    assert answer.way in (FUSED, LOOP)


class Judge(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 1)

    def judged(self, x):
        return self.inner(x).square().mean()


def test_a_method_has_a_choice_of_its_own(own_answers):
    array = dnnsuite.fuse(models := make_models(Judge, 3))
    x = torch.randn(3, 5, 3)
    for _ in range(STEPS):
        array.judged(x).sum().backward()
    ((key, answer),) = [item for item in answers(own_answers).items() if "judged" in item[0]]
    own_answers.put(key, dataclasses.replace(answer, way=LOOP))
    again = dnnsuite.fuse(models)
    expected = torch.stack([model.judged(part) for model, part in zip(models, x, strict=True)])
    torch.testing.assert_close(again.judged(x), expected)
    assert any(f"{LOOP} " in cover.reason for cover in again.coverage())


def test_side_effects_are_not_run_in_a_loop_by_choice():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = torch.nn.Linear(3, 3), 0

        def forward(self, x):
            self.calls += 1
            return self.inner(x)

    array = dnnsuite.fuse(make_models(Counting, 2))
    train(array, torch.randn(STEPS, 2, 5, 3))
    assert array.calls == STEPS


def test_a_batch_of_other_models_is_refused_by_both_ways():
    for way in (LOOP, FUSED):
        array = forced(dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, 4), 2)), way)
        array(torch.randn(2, 5, 3))
        with pytest.raises(InvalidArgument, match="B=2"):
            array(torch.randn(3, 5, 3))


def test_steps_of_a_runner_that_cannot_be_captured_run_as_the_array_chooses(own_answers):
    models = make_models(lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()), 3, torch.float64)

    def stepped(steps, **options):
        array = dnnsuite.fuse(models)
        optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
        loss = lambda part, x: part(x).square().mean((1, 2))  # noqa: E731
        torch.manual_seed(0)
        with dnnsuite.StepRunner(array, optimizer, loss, threads=1, capture=False, **options) as runner:
            for _ in range(steps):
                runner.step(torch.randn(3, 5, 3, dtype=torch.float64))
            return array, runner.mode, runner.settled

    _, _, settled = stepped(10)
    assert settled
    ((key, answer),) = answers(own_answers).items()
    found = {}
    for way in (FUSED, LOOP):
        own_answers.put(key, dataclasses.replace(answer, way=way))
        array, mode, settled = stepped(4)
        assert (mode, settled) == ("eager: capture=False" + "; its models run in a loop" * (way == LOOP), True)
        assert [cover.how for cover in array.coverage()][:1] == ["per model" if way == LOOP else "fused"]
        found[way] = array.state_dict()
        with Products() as products:
            array(torch.randn(3, 5, 3, dtype=torch.float64))
        assert products.one_by_one == (way == LOOP)
    torch.testing.assert_close(found[FUSED], found[LOOP])
    assert stepped(4, width=3)[1:] == ("eager: capture=False", True)  # the same bits in each run


class Begins(torch.nn.Module):
    """Keeps something from the moment on at which its user asks for it."""

    def __init__(self):
        super().__init__()
        self.inner, self.keeps = torch.nn.Linear(3, 3), False
        self.past, self.counts, self.last = [], {"calls": 0}, None

    def forward(self, x):
        y = self.inner(x)
        if self.keeps:
            self.past.append(len(self.past))
            self.counts["calls"] += 1
            y = y * (1 + len(self.past)) + (0 if self.last is None else self.last)
            self.last = y.detach().mean(0)
        return y


def test_code_that_begins_to_keep_something_in_a_loop_keeps_it_for_other_ways_too():
    models, x = make_models(Begins, 3, torch.float64), torch.randn(9, 3, 5, 3, dtype=torch.float64)
    array = dnnsuite.fuse(models)
    for step, way in enumerate((LOOP, LOOP, LOOP, LOOP, FUSED, LOOP, FUSED, FUSED, LOOP)):
        for one in (array, *models):
            one.keeps = step > 1
        expected = torch.stack([model(part) for model, part in zip(models, x[step], strict=True)])
        torch.testing.assert_close(forced(array, way)(x[step]), expected)
        assert (array.past, array.counts) == (models[0].past, models[0].counts)
    for mine, model in zip(dnnsuite.unfuse(array), models, strict=True):
        torch.testing.assert_close(mine.last, model.last)
