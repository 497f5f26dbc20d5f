# SPDX-License-Identifier: MIT
"""Python values that code can reach beside its arguments."""

import types

import numpy as np
import torch

from dnnsuite._C import Guards
from dnnsuite._step.capture.reach import Reach

CONFIG = types.SimpleNamespace(beta=1.0, unused=1.0)


class Namespace:
    beta = 1.0


def helper():
    return CONFIG.beta * Namespace.beta


def values(function):
    reach = Reach()
    reach.call(function)
    return [read() for read in reach.readers]


def test_helpers_objects_and_classes_are_followed(monkeypatch):
    def loss(x):
        return x * helper()

    before = values(loss)
    monkeypatch.setattr(CONFIG, "unused", 2.0)
    assert values(loss) == before
    monkeypatch.setattr(CONFIG, "beta", 2.0)
    middle = values(loss)
    assert middle != before
    monkeypatch.setattr(Namespace, "beta", 2.0)
    assert values(loss) != middle


def test_functions_in_closures_and_small_arrays_are_followed():
    weights = np.ones(3)

    def inner():
        return weights[0]

    def loss(x):
        return x * inner()

    before = values(loss)
    weights[1] = 5
    assert values(loss) != before


def make_scaled(config):
    return lambda x: x * config["factor"]


FIRST, SECOND = {"factor": 1.0}, {"factor": 1.0}
scaled_first, scaled_second = make_scaled(FIRST), make_scaled(SECOND)


def with_default(x, config={"factor": 1.0}):  # noqa: B006
    return x * config["factor"]


class Scale:
    def __call__(self, x):
        return x * CONFIG.beta


def through_a_class(x):
    return Scale()(x)


def test_each_closure_of_one_factory_is_followed(monkeypatch):
    def loss(x):
        return scaled_first(x) + scaled_second(x)

    for config in (FIRST, SECOND):
        before = values(loss)
        monkeypatch.setitem(config, "factor", 2.0)
        assert values(loss) != before


def test_defaults_are_followed(monkeypatch):
    before = values(with_default)
    monkeypatch.setitem(with_default.__defaults__[0], "factor", 2.0)
    assert values(with_default) != before


def test_classes_that_code_uses_are_followed(monkeypatch):
    before = values(through_a_class)
    monkeypatch.setattr(CONFIG, "beta", 3.0)
    assert values(through_a_class) != before


def module_of(source, name="users_module", file="/home/user/users_module.py"):
    made = types.ModuleType(name)
    made.__file__ = file
    exec(compile(source, file, "exec"), made.__dict__)
    return made


def test_functions_of_the_users_modules_are_followed(monkeypatch):
    users = module_of("FACTOR = 1.0\n\ndef scaled(x):\n    return x * FACTOR\n")
    monkeypatch.setitem(globals(), "users", users)
    before = values(through_a_module)
    users.FACTOR = 2.0
    assert values(through_a_module) != before


def through_a_module(x):
    return users.scaled(x)  # noqa: F821


def test_code_that_was_typed_is_the_users():
    source = "FACTOR = 1.0\ndef scaled(x):\n    return x * FACTOR\ndef loss(x):\n    return scaled(x)\n"
    for name, file in (("__main__", "<stdin>"), ("__main__", "<string>"), ("__main__", "<ipython-input-1-0>")):
        typed = module_of(source, name, file)
        before = values(typed.loss)
        typed.FACTOR = 2.0
        assert values(typed.loss) != before


def code(function):
    reach = Reach()
    reach.call(function)
    return reach.code


def test_code_is_told_apart_by_all_that_it_calls():
    sources = [
        "from math import sin as act\ndef helper(x):\n    return 2 * x\n",
        "from math import sin as act\ndef helper(x):\n    return 2 * x\n",
        "from math import sin as act\ndef helper(x):\n    return 3 * x\n",
        "from math import cos as act\ndef helper(x):\n    return 2 * x\n",
        "from math import sin as act\ndef helper(x, y=1):\n    return 2 * x\n",
    ]
    loss = "def loss(x):\n    return act(helper(x))\n"
    found = [code(module_of(source + loss).loss) for source in sources]
    assert [one == found[0] for one in found] == [True, True, False, False, False]


def test_another_function_under_a_name_is_noticed(monkeypatch):
    def loss(x):
        return x * helper()

    reach = Reach()
    reach.call(loss)
    guards = Guards()
    reach.bindings.guard(guards)
    assert guards.hold()
    monkeypatch.setitem(globals(), "helper", lambda: 2.0)
    assert not guards.hold()


def test_settings_of_torchs_backends_may_be_none_or_a_table():
    def loss(x):
        return x if torch.backends.opt_einsum.strategy is None else torch.backends.cuda._BlasBackends

    assert values(loss) == []


def test_settings_are_asked_for_each_name_once_however_many_functions_name_torch(monkeypatch):
    asked = []

    class Settings(types.ModuleType):
        def __getattr__(self, name):
            asked.append(name)
            if name == "mine":
                return 3.0
            raise AttributeError(name)

    monkeypatch.setattr(torch.backends, "settings", Settings("torch.backends.settings"), raising=False)

    def named(number):
        space = {"torch": torch, "__name__": __name__}
        code = f"def function{number}(x):\n    return torch.relu(x) + torch.backends.settings.mine + x.n{number}"
        exec(compile(code, __file__, "exec"), space)
        return space[f"function{number}"]

    functions = [named(number) for number in range(5)]

    def loss(x):
        return sum(function(x) for function in functions)

    values(loss)
    assert [asked.count(f"n{number}") for number in range(5)] == [1] * 5


def test_registries_of_torch_are_not_the_users():
    """`torch.ops.aten` notes each operator that is looked up in it, which is no change that a step depends on."""
    config = types.SimpleNamespace(_dir=2.0)

    def loss(x):
        return torch.ops.aten.bitwise_not(x) * config._dir

    before = values(loss)
    torch.ops.aten.slow_conv_dilated3d  # noqa: B018
    assert values(loss) == before
    vars(config).update(_dir=3.0)
    assert values(loss) != before
