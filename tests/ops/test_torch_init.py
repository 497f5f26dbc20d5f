# SPDX-License-Identifier: MIT
"""torch.nn.init on an array's parameters: the values that each of separate models would have."""

import pytest
import torch
from torch.nn.init import kaiming_normal_, xavier_uniform_

import dnnsuite
from dnnsuite.ops.torch_on_arrays import take_over
from helpers import make_models

B = 3
BY_CHANCE = {
    "kaiming_normal_": {"mode": "fan_out"},
    "kaiming_uniform_": {"a": 5**0.5},
    "orthogonal_": {"gain": 2.0},
    "sparse_": {"sparsity": 0.5},
    "xavier_normal_": {},
    "xavier_uniform_": {"gain": 0.5},
}


@pytest.mark.parametrize("given", ["parameter", "data"])
@pytest.mark.parametrize("name", BY_CHANCE)
def test_values_by_chance(name, given):
    models = make_models(lambda: torch.nn.Sequential(torch.nn.Linear(6, 4)), B)
    array = dnnsuite.fuse(models)
    weight = array.get_parameter("0.weight")
    torch.manual_seed(5)
    fill = getattr(torch.nn.init, name)
    held = weight if given == "parameter" else weight.data
    assert fill(held, **BY_CHANCE[name]) is held
    torch.manual_seed(5)
    for index, model in enumerate(models):
        fill(model[0].weight, **BY_CHANCE[name])
        torch.testing.assert_close(weight[index].detach(), model[0].weight.detach(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "layer"),
    [("eye_", torch.nn.Linear(4, 4)), ("dirac_", torch.nn.Conv2d(4, 4, 3)), ("dirac_", torch.nn.Conv1d(4, 4, 3))],
)
def test_identities(name, layer):
    array = dnnsuite.fuse([layer])
    getattr(torch.nn.init, name)(array.weight)
    getattr(torch.nn.init, name)(layer.weight)
    torch.testing.assert_close(array.weight[0].detach(), layer.weight.detach())


@pytest.mark.parametrize(("fill", "bound"), [(xavier_uniform_, (6 / 300) ** 0.5), (kaiming_normal_, None)])
def test_functions_imported_by_name_count_one_models_numbers(fill, bound):
    array = dnnsuite.fuse([torch.nn.Linear(200, 100) for _ in range(B)])
    fill(array.weight)
    torch.testing.assert_close(array.weight.std().item(), bound / 3**0.5 if bound else 0.1, rtol=0.02, atol=0)


def test_other_tensors_are_filled_as_before():
    other = torch.nn.init.orthogonal_(torch.empty(6, 6))
    torch.testing.assert_close(other @ other.mT, torch.eye(6))


def test_taken_over_once():
    take_over()
    before = torch.nn.init.orthogonal_
    take_over()
    assert torch.nn.init.orthogonal_ is before
