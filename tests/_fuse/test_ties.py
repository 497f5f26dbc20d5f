# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite._fuse.state import tie
from dnnsuite.errors import InvalidArgument
from helpers import check_matches_models, make_models


class Tied(torch.nn.Module):
    array_forward = True

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 4)
        self.head = torch.nn.Linear(4, 7)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x))


def test_tied_weights_stay_tied():
    models = make_models(Tied, 2)
    array = check_matches_models(models, torch.randint(7, (2, 5)))
    assert array.head.weight is array.embedding.weight
    assert all(model.head.weight is model.embedding.weight for model in dnnsuite.unfuse(array))


def test_a_layer_used_twice_is_one_layer():
    def make():
        shared = torch.nn.Linear(4, 4)
        return torch.nn.Sequential(shared, torch.nn.Tanh(), shared)

    array = check_matches_models(make_models(make, 2), torch.randn(2, 5, 4))
    assert array.get_submodule("0") is array.get_submodule("2")
    one = dnnsuite.unfuse(array)[0]
    assert one[0] is one[2]


def test_models_that_tie_differently_are_refused_and_left_as_they_are():
    models = make_models(Tied, 2)
    models[1].head.weight = torch.nn.Parameter(torch.randn(7, 4))
    target = make_models(Tied, 1)[0]
    before = target.head.weight
    with pytest.raises(InvalidArgument, match="models 0 and 1 differ: they share other parameters"):
        tie(target, models)
    assert target.head.weight is before
