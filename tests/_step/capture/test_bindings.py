# SPDX-License-Identifier: MIT
"""Functions and settings of torch and other packages that a user replaces between two steps: captured steps are those
of separate models."""

import functools
import math
import sys
import types

import pytest
import torch
from torch.nn import functional as F

import dnnsuite
from dnnsuite import optim

B, STEPS, CHANGE = 2, 10, 5
RATES = [0.1, 0.05]


class Net(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.inner, self.outer, self.act = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2), torch.nn.ReLU()

    def forward(self, x):
        return self.outer(self.activated(self.inner(x)))

    def activated(self, h):
        return torch.relu(h)


class OfFunctional(Net):
    def activated(self, h):
        return F.gelu(h)


class OfALayer(Net):
    def activated(self, h):
        return self.act(h)


class OfATensor(Net):
    def activated(self, h):
        return h.relu()


def mean_square(model, x, y):
    return (model(x) - y).square().flatten(1).mean(1)


def of_functional(model, x, y):
    return F.mse_loss(model(x), y, reduction="none").flatten(1).mean(1)


def with_a_root(model, x, y):
    return mean_square(model, x, y) * math.sqrt(4.0)


def with_a_number(model, x, y):
    return mean_square(model, x, y) * math.pi


settings = types.ModuleType("settings_of_these_tests")
settings.scale = 1.0
sys.modules[settings.__name__] = settings


def with_an_import(model, x, y):
    import settings_of_these_tests

    return mean_square(model, x, y) * settings_of_these_tests.scale


def by_determinism(model, x, y):
    return mean_square(model, x, y) * (2.0 if torch.are_deterministic_algorithms_enabled() else 1.0)


def by_a_backend(model, x, y):
    return mean_square(model, x, y) * (2.0 if torch.backends.cudnn.benchmark else 1.0)


def by_precision(model, x, y):
    return mean_square(model, x, y) * (2.0 if torch.backends.cuda.matmul.allow_tf32 else 1.0)


def losses_of(kind, loss, change, step_of):
    """Make models and train them by what `step_of` makes of them."""
    models = [kind(seed).double() for seed in range(B)]
    torch.manual_seed(7)
    batches = [(torch.randn(B, 5, 4).double(), torch.randn(B, 5, 2).double()) for _ in range(STEPS)]
    found = []
    step = step_of(models, loss)
    for number, batch in enumerate(batches):
        if number == CHANGE:
            change()
        found.append(step(*batch))
    return torch.stack(found)


def separate(models, loss):
    optimizers = [torch.optim.SGD(model.parameters(), lr) for model, lr in zip(models, RATES, strict=True)]

    def step(x, y):
        made = [
            loss(lambda x, model=model: model(x[0])[None], x[i : i + 1], y[i : i + 1]) for i, model in enumerate(models)
        ]
        for value, optimizer in zip(made, optimizers, strict=True):
            optimizer.zero_grad()
            value.sum().backward()
            optimizer.step()
        return torch.cat(made).detach()

    return step


CHANGES = {
    "a function of torch": (Net, mean_square, torch, "relu", torch.tanh),
    "a function of torch.nn.functional": (OfFunctional, mean_square, F, "gelu", torch.tanh),
    "a function that a layer calls": (OfALayer, mean_square, F, "relu", lambda x, inplace=False: torch.tanh(x)),
    "a method of tensors": (OfATensor, mean_square, torch.Tensor, "relu", lambda x: torch.tanh(x)),
    "a loss": (Net, of_functional, F, "mse_loss", lambda a, b, reduction: (a - b).abs()),
    "a function of the standard library": (Net, with_a_root, math, "sqrt", lambda x: x),
    "a number of the standard library": (Net, with_a_number, math, "pi", 3.0),
    "a module that code imports as it runs": (Net, with_an_import, settings, "scale", 3.0),
    "the forward of a layer": (OfALayer, mean_square, torch.nn.ReLU, "forward", lambda self, x: torch.tanh(x)),
    "a setting of a backend": (Net, by_a_backend, torch.backends.cudnn, "benchmark", True),
}


@pytest.mark.parametrize(("threads", "width"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("what", CHANGES)
def test_what_is_replaced_in_a_package_counts_in_the_next_step(what, threads, width, monkeypatch):
    kind, loss, owner, name, new = CHANGES[what]
    change = functools.partial(monkeypatch.setattr, owner, name, new)
    expected = losses_of(kind, loss, change, separate)
    monkeypatch.undo()
    check(kind, loss, change, expected, threads, width)


def check(kind, loss, change, expected, threads, width):
    runners = []

    def captured(models, loss):
        array = dnnsuite.fuse(models)
        runners.append(
            dnnsuite.StepRunner(
                array, optim.SGD(array.parameters(), RATES), loss, threads=threads, width=width, audit=0
            )
        )
        return lambda x, y: runners[0].step(x, y).losses().double()

    found = losses_of(kind, loss, change, captured)
    with runners[0] as runner:
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
        assert runner.mode == "captured"


def allow_tf32(value):
    torch.backends.cuda.matmul.allow_tf32 = value


@pytest.mark.parametrize(
    ("loss", "set_to"), [(by_determinism, torch.use_deterministic_algorithms), (by_precision, allow_tf32)]
)
def test_a_setting_that_torch_computes_counts_in_the_next_step(loss, set_to):
    change = functools.partial(set_to, True)
    try:
        expected = losses_of(Net, loss, change, separate)
        set_to(False)
        check(Net, loss, change, expected, 1, 2)
    finally:
        set_to(False)


def test_a_function_put_in_torchs_place_is_followed(monkeypatch):
    scale = {"factor": 1.0}
    relu = torch.relu
    monkeypatch.setattr(torch, "relu", lambda x: relu(x) * scale["factor"])
    change = functools.partial(scale.update, factor=3.0)
    expected = losses_of(Net, mean_square, change, separate)
    scale.update(factor=1.0)
    check(Net, mean_square, change, expected, 1, 2)


SCALE = {"factor": 1.0}


@functools.cache
def cached_scale():
    return SCALE["factor"]


def with_a_cache(model, x, y):
    return mean_square(model, x, y) * cached_scale()


def test_a_cache_that_is_cleared_is_filled_anew():
    def change():
        SCALE["factor"] = 3.0
        cached_scale.cache_clear()

    def begin():
        SCALE["factor"] = 1.0
        cached_scale.cache_clear()

    begin()
    expected = losses_of(Net, with_a_cache, change, separate)
    begin()
    check(Net, with_a_cache, change, expected, 1, 2)


class WithATensor(Net):
    def __init__(self, seed):
        super().__init__(seed)
        self.factor = torch.ones(2, dtype=torch.float64)

    def forward(self, x):
        return super().forward(x) * self.factor


@pytest.mark.parametrize("width", [1, 2])
def test_a_tensor_in_an_attribute_that_gets_another_memory_counts_in_the_next_step(width):
    held = []

    def step_of_separate(models, loss):
        held[:] = [model.factor for model in models]
        return separate(models, loss)

    def change():
        for one in held:
            one.data = torch.full((2,), 0.7, dtype=torch.float64)

    expected = losses_of(WithATensor, mean_square, change, step_of_separate)
    runners = []

    def captured(models, loss):
        array = dnnsuite.fuse(models)
        held[:] = [array.factor]
        optimizer = optim.SGD(array.parameters(), RATES)
        runners.append(dnnsuite.StepRunner(array, optimizer, loss, threads=1, width=width, audit=0))
        return lambda x, y: runners[0].step(x, y).losses().double()

    found = losses_of(WithATensor, mean_square, change, captured)
    with runners[0]:
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
