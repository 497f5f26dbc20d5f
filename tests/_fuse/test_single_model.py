# SPDX-License-Identifier: MIT
import copy

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
