# SPDX-License-Identifier: MIT
"""Values that are equal and of another type, as 1 and True are, decide another way."""

import cmath
import math
import types

import pytest
import torch

import dnnsuite

B = 2
SCALE = 1


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale = torch.nn.Linear(3, 1), 1

    def forward(self, x):
        return factor(self.scale) * self.layer(x)


def factor(value):
    return {bool: 3.0, int: 1.0, float: 5.0}[type(value)]


def holders(array):
    """Yield by name where a step reads the value, and what sets it."""
    settings, table, cell = types.SimpleNamespace(scale=1), {"scale": [1]}, 1

    def loss(array, x):
        each = settings.scale, table["scale"][0], cell, SCALE
        return array(x).square().flatten(1).mean(1) * sum(map(factor, each))

    def in_cell(value):
        nonlocal cell
        cell = value

    puts = {
        "attribute": lambda value: setattr(settings, "scale", value),
        "list": lambda value: table["scale"].__setitem__(0, value),
        "closure": in_cell,
        "global": lambda value: globals().__setitem__("SCALE", value),
        "module": lambda value: setattr(array, "scale", value),
    }
    return loss, puts


@pytest.mark.parametrize("holder", ["attribute", "list", "closure", "global", "module"])
@pytest.mark.parametrize("value", [True, 1.0])
def test_an_equal_value_of_another_type_is_another_value(holder, value, monkeypatch):
    monkeypatch.setitem(globals(), "SCALE", 1)
    torch.manual_seed(0)
    models = [Model() for _ in range(B)]
    array = dnnsuite.fuse(models)
    loss, puts = holders(array)
    x = torch.randn(B, 4, 3)
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.0)
    with dnnsuite.StepRunner(array, optimizer, loss, threads=1, audit=0) as runner:
        for now in (1, value, 1, value):
            puts[holder](now)
            for _ in range(5):
                expected = loss(array, x).detach()
                torch.testing.assert_close(runner.step(x).losses(), expected)
            assert runner.mode == "captured"


@pytest.mark.parametrize(
    ("before", "after", "read"),
    [
        (1, True, factor),
        (1, 1.0, factor),
        (0.0, -0.0, lambda value: 2.0 + math.copysign(1.0, value)),
        (complex(-1, 0.0), complex(-1, -0.0), lambda value: 5.0 + cmath.phase(value)),
    ],
)
def test_an_equal_value_of_a_batch_may_be_another(before, after, read):
    array = dnnsuite.fuse([torch.nn.Linear(3, 1) for _ in range(B)])
    x, optimizer = torch.randn(B, 4, 3), dnnsuite.optim.SGD(array.parameters(), lr=0.0)

    def loss(array, x, value):
        return array(x).square().flatten(1).mean(1) * read(value)

    with dnnsuite.StepRunner(array, optimizer, loss, threads=1, audit=0) as runner:
        for value in (before, after, before, after):
            for _ in range(5):
                torch.testing.assert_close(runner.step(x, value).losses(), loss(array, x, value).detach())
            assert runner.mode == "captured"
