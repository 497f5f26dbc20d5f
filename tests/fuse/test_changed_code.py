# SPDX-License-Identifier: MIT
"""Changes between steps in what a model's code reaches and where its state lies, against separate models in float64."""

import dataclasses
import functools
import types

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim

B, STEPS, LR = 3, 7, [5e-5, 2e-5, 8e-5]


@dataclasses.dataclass
class Config:
    weight: float = 1.0

    def gain(self):
        return 2 * self.weight


def scaled(config):
    return lambda x: x * config["k"]


def defaulted(x, config={"k": 1.0}):  # noqa: B006
    return x * config["k"]


def doubled(x):
    return x * 2


def tripled(x):
    return x * 3


CONFIG, LONG, NESTED = Config(), [0.1] * 40, {"a": {"b": {"c": {"d": 1.0}}}}
FIRST, SECOND = {"k": 1.0}, {"k": 1.0}
first, second = scaled(FIRST), scaled(SECOND)
partly = functools.partial(lambda x, held: x * held["k"], held={"k": 1.0})
helper, activation = doubled, torch.tanh
users = types.ModuleType("users")
users.__file__ = "/home/user/users.py"
exec(compile("FACTOR = 1.0\n\ndef scaled(x):\n    return x * FACTOR\n", users.__file__, "exec"), users.__dict__)


class Net(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.c, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
        self.config = {"a": {"b": {"c": {"d": 1.0}}}}

    def gate(self, x):
        return x

    def forward(self, x):
        x = self.gate(self.b(torch.relu(self.c(torch.tanh(self.a(x))))))
        x = users.scaled(partly(defaulted(second(first(helper(activation(x)))))))
        third = torch.full((2,), 1 / 3).double()
        nested = NESTED["a"]["b"]["c"]["d"] * self.config["a"]["b"]["c"]["d"]
        return x * CONFIG.gain() * sum(LONG) * nested + third


def swap(model):
    model.a, model.c = model.c, model.a


def put_elsewhere(model):
    model.b.weight.data = model.b.weight.data * 0.5


def read_twice(model):
    model.gate = lambda x: x + model.b(torch.tanh(model.a(torch.ones(4).double())))


def twice(model):
    old = model.forward
    model.forward = lambda x: 2 * old(x)


def twice_in_a_layer(model):
    old = model.c.forward
    model.c.forward = lambda x: 2 * old(x)


#: Each with the change of a model or an array; `(owner, name or key, value)` is put in place for both.
CHANGES = {
    "a method of a dataclass": (CONFIG, "weight", 2.0),
    "a long list": (LONG, 30, 2.0),
    "a dictionary deep in others": (NESTED["a"]["b"]["c"], "d", 2.0),
    "another closure of a factory": (SECOND, "k", 2.0),
    "a default": (defaulted.__defaults__[0], "k", 2.0),
    "an argument of a partial": (partly.keywords["held"], "k", 2.0),
    "a function of ours": (globals(), "helper", tripled),
    "a function of torch's": (globals(), "activation", torch.sigmoid),
    "a method": (Net, "gate", lambda self, x: x * 3),
    "what a function of a module reads": (users, "FACTOR", 2.0),
    "a dictionary deep in an attribute": lambda model: model.config["a"]["b"]["c"].update(d=2.0),
    "modules that change places": swap,
    "a weight's data": put_elsewhere,
    "a function that holds its model": read_twice,
    "the forward of the models": twice,
    "the forward of a layer": twice_in_a_layer,
    "a bias taken away": lambda model: setattr(model.c, "bias", None),
    "a layer taken away": lambda model: setattr(model, "c", model.a),
    "the default dtype": lambda model: torch.set_default_dtype(torch.float64),
}


def changed(change, model, monkeypatch):
    if callable(change):
        change(model)
    elif isinstance(change[0], (dict, list)):
        owner, key, value = change
        if isinstance(owner, dict):
            monkeypatch.setitem(owner, key, value)
        else:
            owner[key] = value
    else:
        monkeypatch.setattr(*change)


@pytest.fixture(autouse=True)
def _as_before():
    yield
    LONG[30] = 0.1
    torch.set_default_dtype(torch.float32)


def data():
    return torch.randn(STEPS, B, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def separate(change):
    xs, found = data(), []
    for index in range(B):
        with pytest.MonkeyPatch.context() as patched:
            model, losses = Net(index).double(), []
            own = torch.optim.SGD(model.parameters(), lr=LR[index], momentum=0.9)
            for step, x in enumerate(xs[:, index]):
                if step == 4:
                    changed(change, model, patched)
                own.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                own.step()
                losses.append(loss.detach())
            found.append(torch.stack(losses))
        LONG[30] = 0.1
        torch.set_default_dtype(torch.float32)
    return torch.stack(found, 1)


@pytest.mark.parametrize("name", CHANGES)
def test_a_runner_follows(name, monkeypatch):
    change = CHANGES[name]
    expected = separate(change)
    array = dnnsuite.fuse([Net(index).double() for index in range(B)])
    optimizer = optim.SGD(array.parameters(), lr=LR, momentum=0.9)
    found = []
    with StepRunner(array, optimizer, lambda part, x: part(x).square().mean((1, 2)), threads=1, width=B) as runner:
        for step, x in enumerate(data()):
            if step == 4:
                changed(change, array, monkeypatch)
            found.append(runner.step(x).losses().clone())
    torch.testing.assert_close(torch.stack(found), expected, rtol=1e-9, atol=1e-11)


def test_parameters_taken_out_of_the_optimizer_are_trained_no_more():
    array = dnnsuite.fuse([Net(index).double() for index in range(B)])
    optimizer = optim.SGD(array.parameters(), lr=LR)
    with StepRunner(array, optimizer, lambda part, x: part(x).square().mean((1, 2)), threads=1, width=B) as runner:
        for x in data():
            runner.step(x)
            if len(optimizer.param_groups[0]["params"]) == 6:
                bias = optimizer.param_groups[0]["params"].pop()
                before = bias.detach().clone()
    assert torch.equal(bias, before)
