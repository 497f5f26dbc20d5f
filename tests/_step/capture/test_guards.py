# SPDX-License-Identifier: MIT
import functools

import torch

from dnnsuite._step.capture import guards


def values_of(function):
    """A function that reads all values that a function's code sees."""
    readers = guards.reach_of(function).readers
    return lambda: [read() for read in readers]


def signature(batch):
    return guards.flatten(batch)[1]


def test_a_signature_is_about_layout_and_values():
    x, y = torch.zeros(2, 3), torch.zeros(2, 3)
    same = signature((x, {"a": y, "b": 1.0}))
    assert same == signature((y, {"a": x, "b": 1.0}))
    assert same == signature((x, {"a": y, "b": 2.0}))  # a number is no layout
    assert guards.flatten((x, {"a": y, "b": 2.0}))[2] == (2.0,)
    assert same != signature((x, {"a": y, "b": 2}))
    assert same != signature((x, {"a": y, "b": True}))
    assert same != signature((x, {"a": y.double(), "b": 1.0}))
    assert same != signature((x, {"a": torch.zeros(3, 2).t(), "b": 1.0}))
    assert same != signature((x, {"a": x, "b": 1.0}))
    assert same != signature((x, {"c": y, "b": 1.0}))
    assert signature((x, object())) is None
    assert guards.flatten((x, {"a": y, "b": 1.0}))[0][1] is y


def test_hooks_are_found():
    array = torch.nn.Sequential(torch.nn.Linear(2, 2))
    assert guards.hook(array) is None
    modes = guards.modes_of(array)
    handle = array[0].register_forward_pre_hook(lambda *_: None)
    assert guards.hook(array) == "0"
    assert not modes.hold()
    handle.remove()
    assert modes.hold()
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert "global" in guards.hook(array)
    handle.remove()
    assert guards.hook(array) is None


def test_modes_see_training_freezing_and_other_parameters():
    array = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    modes = guards.modes_of(array)
    assert modes.hold()
    array[1].eval()
    assert not modes.hold()
    array[1].train()
    array[0].bias.requires_grad_(False)
    assert not modes.hold()
    array[0].bias.requires_grad_(True)
    assert modes.hold()
    memory = guards.guard_addresses(type(modes)(), array.parameters())
    assert memory.hold()
    array[0].weight.data = array[0].weight.data.clone()
    assert not memory.hold()
    assert guards.modes_of(torch.nn.ReLU()).hold()


FACTOR = 1.0


def test_values_that_a_function_sees(monkeypatch):
    weight, seen = 2.0, []

    def loss(x, scale=1):
        return x * weight * FACTOR, seen

    class Loss:
        def __init__(self):
            self.gamma = 1.0

        def __call__(self, x):
            return x * self.gamma

        def loss(self, x):
            return x * self.gamma

    read = values_of(functools.partial(loss, scale=2))
    before = read()
    assert read() == before
    weight = 3.0
    assert read() != before
    before = read()
    seen.append(1)
    assert read() != before
    before = read()
    seen[0] = 2
    assert read() != before
    before = read()
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert read() != before
    owner = Loss()
    for function in (owner.loss, owner):
        read = values_of(function)
        before = read()
        owner.steps = 1
        assert read() == before  # not named by the function
        owner.gamma = owner.gamma + 1.0
        assert read() != before
