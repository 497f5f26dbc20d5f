# SPDX-License-Identifier: MIT
"""An optimizer of an array given what is no array's."""

import pytest
import torch

import dnnsuite
from dnnsuite import errors, nn, optim


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.scale


@pytest.mark.parametrize(
    "given",
    [
        lambda m: m.parameters(),
        lambda m: list(m.parameters()),
        lambda m: [{"params": m.parameters()}],
        lambda m: m.named_parameters(),
    ],
)
@pytest.mark.parametrize("make", [lambda: torch.nn.Linear(8, 8), lambda: torch.nn.Sequential(torch.nn.Linear(4, 2))])
def test_a_plain_models_parameters_are_refused_with_the_way_to_an_array(given, make):
    model = make()
    with pytest.raises(errors.InvalidArgument, match=r"plain Linear.*dnnsuite\.fuse.*torch\.optim\.Adam"):
        optim.Adam(given(model), lr=0.1)


def test_a_module_in_the_place_of_its_parameters():
    with pytest.raises(errors.InvalidArgument, match=r"array\.parameters\(\)"):
        optim.SGD(nn.Linear(3, 2, B=2), lr=0.1)


def test_parameters_of_arrays_and_of_ones_own_are_taken():
    own = torch.nn.Parameter(torch.ones(3, 2))
    assert optim.SGD([own], lr=0.1).B == 3
    array = dnnsuite.fuse([Scaled() for _ in range(2)])
    assert optim.SGD(array.parameters(), lr=0.1).B == 2
    assert optim.SGD(nn.Linear(3, 2, B=5).parameters(), lr=0.1).B == 5
