# SPDX-License-Identifier: MIT
"""Functions that hold a module of their model: each model's goes on with its own, in the array and out of it."""

import copy
import functools
import types

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models


def model():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))


def scale(module, by):
    old = module.forward
    module.forward = lambda x: old(x) * by


def scale_twice(module, by):
    scale(module, by)
    scale(module, 3.0)


def swap(module, by):
    def forward(x, *, own=module):
        return x if own is None else by * own[2](own[0](x))

    module.forward = forward


def recursive(module, by):
    def forward(x, depth=2):
        return forward(x * by, depth - 1) if depth else module[0](x)

    module.forward = forward


def partial(module, by):
    module.forward = functools.partial(lambda own, x: by * own[0](x) * own[2](x), module)


def method(module, by):
    module[1].forward = types.MethodType(lambda self, x: by * x, module[1])


CHANGES = {
    "model": scale,
    "model twice": scale_twice,
    "layer": lambda module, by: scale(module[0], by),
    "activation": lambda module, by: scale(module[1], by),
    "keyword": swap,
    "recursive": recursive,
    "partial": partial,
    "method": method,
}


def check(models):
    """Compare outputs, gradients, parts and copies. torch's own copy of such a model looks at the model it is of."""
    x = torch.randn(3, 5, 4)
    array = dnnsuite.fuse(models)
    expected = [one(own) for one, own in zip(models, x, strict=True)]
    for width in (1, 2):
        for start in range(4 - width):
            part = array.narrow(start, width)(x[start : start + width])
            assert_near(part, torch.stack(expected[start : start + width]))
    array(x).sum().backward()
    for index, (one, back) in enumerate(zip(models, dnnsuite.unfuse(array), strict=True)):
        expected[index].sum().backward()
        for name, parameter in one.named_parameters():
            if parameter.grad is not None:
                assert_near(array.get_parameter(name).grad[index], parameter.grad)
        for other in (back, array[index], copy.deepcopy(array)[index]):
            assert_near(other(x[index]), expected[index])
            with torch.no_grad():
                other[0].weight.zero_()
                other[0].bias.zero_()
            assert not torch.equal(other(x[index]), expected[index])
        assert_near(array(x)[index], expected[index])


class Holder:
    def __init__(self, function):
        self.function = function


HELD = {
    "dictionary": (lambda f: {"f": f}, lambda held: held["f"]),
    "tuple": (lambda f: (f,), lambda held: held[0]),
    "deep": (lambda f: [{"a": [{"b": f}]}], lambda held: held[0]["a"][0]["b"]),
    "object": (Holder, lambda held: held.function),
    "partial": (lambda f: functools.partial(lambda by, x: by * f(x), 1.0), lambda held: held),
}


@pytest.mark.parametrize("held", HELD)
def test_functions_that_models_hold_in_containers_and_objects(held):
    make, find = HELD[held]

    class Model(torch.nn.Sequential):
        def __init__(self):
            super().__init__(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
            self.functions = make(lambda x: 2.0 * self[2](self[0](x)))

        def forward(self, x):
            return find(self.functions)(x)

    check(make_models(Model, 3))


@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_forward_that_was_set_in_an_instance(change, differ):
    models = make_models(model, 3)
    for index, one in enumerate(models):
        CHANGES[change](one, 2.0 + index * differ)
    check(models)


@pytest.mark.parametrize("where", ["", "0", "1"])
def test_a_forward_that_was_set_in_one_instance_only(where):
    models = make_models(model, 3)
    scale(models[1].get_submodule(where), 3.0)
    check(models)


@pytest.mark.parametrize("where", ["0", "1", "2"])
def test_a_forward_that_is_set_after_fuse(where):
    models = make_models(model, 3)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 5, 4)
    array(x)
    for one in (*models, array):
        one.get_submodule(where).forward = lambda y: y.mean(1, keepdim=True) + y
    for index, one in enumerate(models):
        assert_near(array(x)[index], one(x[index]))


def test_another_method_that_was_set_in_a_layer():
    def circular(self, x, weight, bias):
        return torch.nn.functional.conv1d(torch.nn.functional.pad(x, (1, 1), "circular"), weight, bias)

    models = make_models(lambda: torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3, padding=1)), 3)
    for one in models:
        one[0]._conv_forward = types.MethodType(circular, one[0])
    check_matches_models(models, torch.randn(3, 2, 2, 6))


def test_a_forward_that_was_set_in_torchs_class(monkeypatch):
    monkeypatch.setattr(torch.nn.Tanh, "forward", lambda self, x: x * 3)
    monkeypatch.setattr(torch.nn.LayerNorm, "forward", lambda self, x: x * self.weight)
    check_matches_models(make_models(lambda: torch.nn.Sequential(torch.nn.LayerNorm(4)), 3), torch.randn(3, 5, 4))
    check_matches_models(make_models(lambda: torch.nn.Sequential(torch.nn.Tanh()), 3), torch.randn(3, 5, 4))


@pytest.mark.parametrize("kind", [torch.nn.ReLU, torch.nn.GELU, torch.nn.SiLU, torch.nn.Mish, torch.nn.ELU])
def test_a_forward_that_was_set_in_an_activations_class(monkeypatch, kind):
    monkeypatch.setattr(kind, "forward", lambda self, x: x * 3)

    def make():
        layers = [torch.nn.Linear(4, 4), kind(), torch.nn.BatchNorm1d(4), kind()]
        return torch.nn.Sequential(*layers).eval()

    check_matches_models(make_models(make, 3), torch.randn(3, 5, 4))
    pooled = make_models(lambda: torch.nn.Sequential(kind(), torch.nn.MaxPool2d(2)), 3)
    check_matches_models(pooled, torch.randn(3, 2, 3, 8, 8))


def test_a_function_that_holds_what_cannot_follow_is_refused():
    models = make_models(model, 2)
    for one in models:
        one.forward = lambda x, weight=one[0].weight: x @ weight
    with pytest.raises(InvalidArgument, match=r"Sequential.forward is a function that holds 0.weight"):
        dnnsuite.fuse(models)
    models = make_models(model, 2)
    for index, one in enumerate(models):
        one[1].forward = lambda x, fc=one[0], by=index: by * fc(x)
    with pytest.raises(InvalidArgument, match=r"ReLU.forward is a function that holds 0 of the model"):
        dnnsuite.fuse(models)
