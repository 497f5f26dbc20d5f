# SPDX-License-Identifier: MIT
import copy
import types

import pytest
import torch

import dnnsuite
from dnnsuite._fuse.single_model import model_of, parts_of
from helpers import assert_near, make_models


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.MultiheadAttention(4, 2)
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.inner(x, x, x)[0] * self.scale


def test_a_model_is_of_the_users_class_and_shares_nothing_with_the_array():
    models = make_models(lambda: torch.nn.Sequential(Scaled(), torch.nn.Tanh()), 3)
    array = dnnsuite.fuse(models)
    one = model_of(array._root, 1)
    assert [type(m) for m in one.modules()] == [type(m) for m in models[1].modules()]
    assert one.__dict__.keys() == models[1].__dict__.keys()
    assert one[0].__dict__.keys() == models[1][0].__dict__.keys()
    x = torch.randn(2, 3, 4)
    expected = copy.deepcopy(models[1])(x)
    with torch.no_grad():
        for parameter in array.parameters():
            parameter.zero_()
    assert_near(one(x), expected)


def test_parts_end_at_layers_of_arrays():
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Sequential(Scaled(), torch.nn.Tanh()), 2))
    names = [type(part).__name__ for part in parts_of(array._root)]
    assert sorted(names) == ["MultiheadAttention", "Scaled", "Sequential", "Tanh"]


class Reading(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) * getattr(self.layer, "gain", 1.0) / (1 + float(x.detach().mean()))


def scaled(layer):
    layer.gain = 3.0


def replaced(layer):
    old = layer.forward
    layer.forward = lambda x: 2 * old(x)


def bound(layer):
    layer.forward = types.MethodType(lambda self, x: self.weight.mean() * x, layer)


@pytest.mark.parametrize("change", [scaled, replaced, bound])
def test_models_one_by_one_have_what_was_set_on_a_layer_later(change):
    models = make_models(Reading, 2)
    array = dnnsuite.fuse(models)
    x = torch.randn(2, 5, 4)
    for step in range(6):
        if step in (2, 4):
            for one in (array, *models):
                change(one.layer)
        expected = torch.stack([model(batch) for model, batch in zip(models, x, strict=True)])
        if change is not bound:  # whose weight is one model's in a loop only
            torch.testing.assert_close(array(x), expected)
    torch.testing.assert_close(array[1](x[1]), expected[1])
