# SPDX-License-Identifier: MIT
"""From models to an array and back, whatever they are made of."""

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from helpers import check_matches_models, make_models


class Various(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4), "b": torch.nn.Linear(4, 4)})
        self.scales = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(4)) for _ in range(2)])
        self.normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4))
        self.order = [self.blocks["b"], self.blocks["a"]]  # not registered, the same modules
        self.nothing = None
        self.register_buffer("table", torch.arange(4.0), persistent=False)
        self.frozen = torch.nn.Linear(4, 4).requires_grad_(False)
        self.off = torch.nn.BatchNorm1d(4).eval()

    def forward(self, x):
        for block in self.order:
            x = torch.relu(block(x))
        return self.off(self.frozen(self.normed(x))) * self.scales[0] + self.scales[1] + self.table


def test_all_kinds_of_modules():
    array = check_matches_models(make_models(Various, 3), torch.randn(3, 5, 4))
    assert array.order[0] is array.blocks["b"]
    one = array[1]
    assert one.order[0] is one.blocks["b"]
    assert not one.frozen.weight.requires_grad
    assert not one.off.training
    assert one.normed.training


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.frozen.requires_grad_(True), "frozen"),
        (lambda m: m.eval(), "training is True and False"),
        (lambda m: m.off.train(), "at off: training"),
        (lambda m: m.double(), "dtype"),
        (lambda m: m.blocks.update({"c": torch.nn.ReLU()}), "at blocks"),
        (lambda m: m.register_parameter("extra", torch.nn.Parameter(torch.ones(1))), "parameters"),
        (lambda m: setattr(m.blocks["a"], "weight", m.blocks["b"].weight), "share other parameters"),
    ],
)
def test_names_the_first_difference(change, message):
    models = make_models(Various, 3)
    change(models[2])
    with pytest.raises(InvalidArgument, match=message) as error:
        dnnsuite.fuse(models)
    assert "models 0 and 2" in str(error.value)


def test_refuses_an_array_and_what_is_no_module():
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(2, 2), 2))
    for wrong in (array, dnnsuite.nn.Linear(2, 2, B=2), "model"):
        with pytest.raises(InvalidArgument):
            dnnsuite.fuse([wrong])


def test_tensor_hooks_are_refused():
    models = make_models(Various, 2)
    models[1].scales[0].register_hook(lambda grad: grad)
    with pytest.raises(InvalidArgument, match="gradient hook"):
        dnnsuite.fuse(models)


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        return torch.tanh(x * self.scale)


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Scaled()
        self.second = self.first

    def forward(self, x):
        return self.second(self.first(x))


def test_a_users_module_may_be_in_two_places():
    check_matches_models(make_models(Twice, 3), torch.randn(3, 5, 4))


def test_a_rate_of_zero_is_the_same_as_a_whole_number():
    array = dnnsuite.fuse([torch.nn.Sequential(torch.nn.Dropout(0.0)), torch.nn.Sequential(torch.nn.Dropout(0.0))])
    array.append(torch.nn.Sequential(torch.nn.Dropout(0)))
    assert len(array) == 3
