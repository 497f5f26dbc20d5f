# SPDX-License-Identifier: MIT
"""Python state of models under a StepRunner: it does what it does in separate models."""

import types

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite._step.capture import NotPlain, PythonState
from dnnsuite._step.capture.python_state import python_values
from helpers import make_models

B, STEPS = 2, 16
GLOBAL = types.SimpleNamespace(beta=1.0)


class Schedule:
    def __init__(self):
        self.t = 0

    def value(self):
        return min(1.0, self.t / 8)


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 3)
        self.beta, self.step, self.table = 1.0, 0, {"beta": [1.0]}
        self.schedule, self.phase = Schedule(), "a"


class Attribute(Plain):
    def forward(self, x):
        return self.inner(x) * self.beta


class Table(Plain):
    def forward(self, x):
        return self.inner(x) * self.table["beta"][0]


class Scheduled(Plain):
    def forward(self, x):
        return self.inner(x) * self.schedule.value()


class Reaching(Plain):
    def forward(self, x):
        return self.inner(x) * factor()


class Phases(Plain):
    def forward(self, x):
        return self.inner(x) * (2.0 if self.phase == "a" else 1.0)


class Counter(Plain):
    def forward(self, x):
        self.step += 1
        self.schedule.t += 1
        return self.inner(x) * min(1.0, self.step / 10)


def factor():
    return GLOBAL.beta


def set_attribute(step, model):
    model.beta = 1.0 if step < 6 else 3.0


def set_table(step, model):
    model.table["beta"][0] = 1.0 if step < 6 else 3.0


def set_schedule(step, model):
    model.schedule.t = step


def set_global(step, model):
    GLOBAL.beta = 1.0 if step < 6 else 3.0


def set_phase(step, model):
    model.phase = "ab"[step % 2]


def nothing(step, model):
    pass


def separate(make, between, data):
    models = make_models(make, B)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    losses = []
    for step, x in enumerate(data):
        for model, optimizer, own in zip(models, optimizers, x, strict=True):
            between(step, model)
            optimizer.zero_grad()
            loss = model(own).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses).view(-1, B), models[0]


CASES = [
    (Attribute, set_attribute, 1, 2, "captured"),
    (Table, set_table, 2, 1, "captured"),
    (Scheduled, set_schedule, 1, 1, "captured"),
    (Reaching, set_global, 2, 1, "captured"),
    (Phases, set_phase, 1, 2, "captured"),
    (Counter, nothing, 2, 1, "captured"),
    (Counter, nothing, 1, 2, "captured"),
]


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize(("make", "between", "width", "threads", "mode"), CASES)
def test_python_values_are_those_of_now(make, between, width, threads, mode, capture):
    data = torch.randn(STEPS, B, 5, 4)
    expected, model = separate(make, between, data)
    array = dnnsuite.fuse(make_models(make, B))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    losses = []

    def loss(array, x):
        return array(x).square().mean((1, 2))

    with StepRunner(array, optimizer, loss, threads=threads, width=width, capture=capture) as runner:
        for step, x in enumerate(data):
            between(step, array)
            losses.append(runner.step(x).losses())
        assert not capture or runner.mode.startswith(mode), runner.mode
    torch.testing.assert_close(torch.stack(losses), expected)
    assert [m.step for m in dnnsuite.unfuse(array)] == [model.step] * B
    assert [m.schedule.t for m in dnnsuite.unfuse(array)] == [model.schedule.t] * B


def test_a_counter_that_the_user_resets_stays_reset():
    array = dnnsuite.fuse(make_models(Counter, B))
    optimizer = optim.SGD(array.parameters(), lr=0.1)

    def loss(array, x):
        return array(x).square().mean((1, 2))

    with StepRunner(array, optimizer, loss, threads=2, width=1) as runner:
        for step in range(4):
            if step == 2:
                array.step = 0
            runner.step(torch.randn(B, 5, 4))
    assert array.step == 2


def test_a_value_that_models_may_have_each_for_itself_is_no_plain_one():
    array, copy = Plain(), Plain()
    state = PythonState(array, [copy])
    assert not state.changed()
    array.teacher = [torch.zeros(3)]
    assert state.changed()
    with pytest.raises(NotPlain):
        state.carry_over()


def test_lists_and_dictionaries_grow_and_shrink_in_the_copies():
    array, copy = Plain(), Plain()
    state = PythonState(array, [copy])
    array.table["beta"] += [2.0, 3.0]
    array.table["gamma"] = 1
    state.carry_over()
    assert copy.table == {"beta": [1.0, 2.0, 3.0], "gamma": 1}
    del array.table["gamma"], array.table["beta"][0], array.beta
    state.carry_over()
    assert copy.table == {"beta": [2.0, 3.0]}
    assert not hasattr(copy, "beta")


def test_values_are_named_by_where_they_are():
    array = torch.nn.Sequential(Plain())
    values = python_values(array)
    assert values["0.schedule.t"] == 0
    assert values["0.table.beta.0"] == 1.0
    array.eval()
    assert python_values(array) == values
