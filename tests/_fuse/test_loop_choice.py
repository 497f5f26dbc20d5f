# SPDX-License-Identifier: MIT
"""Choice between all models at once and a loop over plain torch modules."""

import copy
import json

import pytest
import torch

import dnnsuite
from dnnsuite import _tune as tune
from dnnsuite._fuse import loop_choice
from dnnsuite._fuse.loop_choice import FUSED, LOOP, WayTrial
from dnnsuite.errors import InvalidArgument
from helpers import make_models

STEPS = 46


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """A table of this test's own."""
    made = tune.TuningTable(tmp_path / "tune.json")
    monkeypatch.setattr(tune, "table", lambda: made)
    return made


def ways(seconds, steps=46):
    """The ways of the steps of a trial in which each way takes its `seconds`."""
    trial, taken = WayTrial("key"), []
    for _ in range(steps):
        taken.append(trial.next())
        if trial.chosen is None:
            trial.add(taken[-1], seconds[taken[-1]])
    return taken, trial


@pytest.mark.parametrize(("loop_s", "chosen"), [(0.5, LOOP), (0.99, FUSED), (2.0, FUSED)])
def test_the_faster_way_is_taken_and_kept(loop_s, chosen, table):
    taken, trial = ways({FUSED: 1.0, LOOP: loop_s})
    timed = 26 if loop_s != 0.99 else 42  # a small difference takes more steps
    assert taken[:16] == [FUSED] * 16
    assert {*taken[16:timed]} == {FUSED, LOOP}
    assert taken[timed:] == [chosen] * (46 - timed)
    assert "measured" in trial.why
    assert WayTrial("key").next() == chosen


def test_a_loop_without_backward_is_given_up():
    trial = WayTrial("key")
    for _ in range(17):
        trial.add(trial.next(), 1.0)
    assert [trial.next() for _ in range(30)][-1] == FUSED


def test_single_slow_steps_do_not_decide():
    trial = WayTrial("key")
    for step in range(46):
        way = trial.next()
        disturbed = step < 30 and way == FUSED
        if trial.chosen is None:
            trial.add(way, 1.0 if way == LOOP else 1.05 if disturbed else 0.9)
    assert trial.chosen == FUSED


class Scaled(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def test_code_of_one_class_and_other_layouts_are_measured_apart(table):
    """What is kept is known by options and memory order as well, not by classes and shapes alone."""
    images = torch.randn(2, 3, 4, 5, 5)
    last = images.movedim(2, -1).contiguous().movedim(-1, 2)
    for factor, x in ((2, images), (2, images), (3, images), (2, last)):
        array = dnnsuite.fuse([Scaled(factor) for _ in range(2)])
        for _ in range(STEPS):
            array(x.requires_grad_()).sum().backward()
    assert len([key for key in json.loads(table.path.read_text()) if "fused or loop" in key]) == 3


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


def test_the_choice_of_an_array_stepped_by_hand_is_in_its_coverage(table):
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()), 3))
    train(array, torch.randn(STEPS, 3, 5, 3))
    known = json.loads(table.path.read_text())
    ((key, (way, why)),) = [item for item in known.items() if "fused or loop" in item[0]]
    table.put(key, [LOOP, why])
    again = dnnsuite.fuse(unfused := dnnsuite.unfuse(array))
    again(torch.randn(3, 5, 3)).sum().backward()
    (cover,) = again.coverage()
    assert (cover.how, cover.name) == ("per model", "")
    assert why in cover.reason
    assert cover.cost_s > 0
    assert len(unfused) == 3
    assert way in (FUSED, LOOP)


class Judge(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 1)

    def judged(self, x):
        return self.inner(x).square().mean()


def test_a_method_has_a_choice_of_its_own(table):
    array = dnnsuite.fuse(models := make_models(Judge, 3))
    x = torch.randn(3, 5, 3)
    for _ in range(STEPS):
        array.judged(x).sum().backward()
    ((key, (_, why)),) = [item for item in json.loads(table.path.read_text()).items() if "judged" in item[0]]
    table.put(key, [LOOP, why])
    again = dnnsuite.fuse(models)
    expected = torch.stack([model.judged(part) for model, part in zip(models, x, strict=True)])
    torch.testing.assert_close(again.judged(x), expected)
    assert any(why in cover.reason for cover in again.coverage())


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
