# SPDX-License-Identifier: MIT
import collections
import copy
import random

import pytest
import torch

import dnnsuite
from dnnsuite._fuse.code.kept_state import KeptState, LastKept, SharedNumbers
from helpers import assert_near, make_models


class Counting(torch.nn.Module):
    """Changes Python state before it comes to code that cannot run for all models at once."""

    def __init__(self):
        super().__init__()
        self.fc, self.calls, self.log, self.known = torch.nn.Linear(4, 4), 0, [], {}
        self.queue = collections.deque(maxlen=2)

    def forward(self, x):
        self.calls += 1
        self.log.append(self.calls)
        self.known[self.calls] = True
        self.queue.append(self.calls)
        x = self.fc(x)
        if x.sum() > 0:
            x = 2 * x
        return x * len(self.log) + self.calls + sum(self.known) + sum(self.queue)


@pytest.mark.parametrize("train", [True, False])
def test_code_that_begins_anew_has_its_python_state_back(train):
    models = make_models(lambda: Counting().train(train), 3)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 2, 4)
    for _ in range(3):
        output = array(x)
        for index, model in enumerate(models):
            assert_near(output[index], model(x[index]))


def test_what_was_kept_is_put_back():
    array = dnnsuite.fuse([Counting() for _ in range(2)])
    random.seed(1)
    kept = KeptState(array._root)
    log, first = array.log, random.random()
    array.calls, array.new = 5, 1
    log.append(1)
    array.queue.extend([1, 2])
    assert kept.numbers.moved()
    kept.put_back()
    assert array.calls == 0
    assert array.log is log
    assert log == []
    assert not array.queue
    assert not kept.numbers.moved()
    assert random.random() == first


class Settings:
    def __init__(self):
        self.levels = {"low": [1.0]}


class Draws(torch.nn.Module):
    """Keeps its state before every call, for its code may draw; some inputs make it begin anew."""

    def __init__(self):
        super().__init__()
        self.fc, self.settings, self.log = torch.nn.Linear(4, 4), Settings(), []

    def forward(self, x, looks=False):
        self.log.append(len(self.log))
        level = self.settings.levels["low"]
        level[0] += 1
        y = self.fc(x) * level[0] + len(self.log)
        if looks and y.sum() > 0:  # another way in each model
            y = y * 2
        return torch.randn_like(y) if looks is None else y


CHANGES = {
    "an element": lambda root: root.log.append(1),
    "a nested object": lambda root: root.settings.levels.update(high=[2.0]),
    "a deeper one": lambda root: root.settings.levels["low"].append(1.0),
    "an attribute": lambda root: root.__dict__.update(more=1),
    "a flag": lambda root: root.fc.weight.requires_grad_(False),
    "a hook": lambda root: root.fc.register_forward_hook(lambda *_: None),
    "a part": lambda root: root.add_module("other", torch.nn.ReLU()),
    "a parameter": lambda root: root.fc._parameters.update(bias=None),
}


@pytest.mark.parametrize("what", CHANGES)
def test_attributes_are_kept_anew_once_something_has_changed(what):
    root = dnnsuite.fuse([Draws() for _ in range(2)])._root
    last = LastKept()
    kept = last.of(root, True)
    assert last.of(root, True) is kept
    assert last.of(copy.deepcopy(root), True) is not kept
    last = copy.deepcopy(LastKept())
    kept = last.of(root, True)
    CHANGES[what](root)
    assert last.of(root, True) is not kept


def test_a_late_call_that_begins_anew_has_the_state_that_users_have_left():
    models = make_models(Draws, 3)
    array, x = dnnsuite.fuse(models), torch.randn(3, 2, 4)
    for step in range(6):
        if step in (2, 4):
            array.settings.levels["low"][0] = float(step)
            array.log.clear()
        output = array(x, looks=step == 5)
        for index, model in enumerate(models):
            if step in (2, 4):
                model.settings.levels["low"][0] = float(step)
                model.log.clear()
            assert_near(output[index], model(x[index], looks=step == 5))


def test_a_later_forward_keeps_what_the_first_changed():
    root = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4).eval())
    first = KeptState(root)
    root(torch.randn(5, 4))
    names = first.changed_buffers()
    assert names == ["0.running_mean", "0.running_var", "0.num_batches_tracked"]
    kept, before = KeptState(root, parameters=True, buffers=names), copy.deepcopy(root.state_dict())
    root(torch.randn(5, 4))
    with torch.no_grad():
        root[1].weight.mul_(2)
    kept.put_back()
    for name, value in root.state_dict().items():
        assert torch.equal(value, before[name])


def test_generators_of_gpus_are_put_back(monkeypatch):
    """Numbers are in the place of the generators' states: no GPU is needed to lose sight of one."""
    held = [torch.tensor([1], dtype=torch.uint8), torch.tensor([2], dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [state.clone() for state in held])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda states: held.__setitem__(slice(None), states))
    kept = SharedNumbers(others=False)
    held[1] = torch.tensor([9], dtype=torch.uint8)
    assert kept.torch_moved()
    kept.put_back(torchs=True)
    assert not kept.torch_moved()
    assert [int(state) for state in held] == [1, 2]
