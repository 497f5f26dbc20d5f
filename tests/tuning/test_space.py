# SPDX-License-Identifier: MIT
"""Spaces: drawn from, made a grid of, read from plain values."""

import random

import pandas
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning import Choice, Int, LogUniform, Uniform
from dnnsuite.tuning.space import checked_configs, checked_space, draw, grid, perturbed, space_from_plain

SPACE = {"lr": LogUniform(1e-4, 1e-1), "depth": Int(2, 4), "kind": Choice("a", "b"), "p": Uniform(0, 0.5)}


def test_draws_stay_inside():
    generator = random.Random(0)
    drawn = [draw(SPACE, generator) for _ in range(200)]
    assert all(1e-4 <= one["lr"] <= 1e-1 and one["p"] <= 0.5 for one in drawn)
    assert {one["depth"] for one in drawn} == {2, 3, 4}
    assert 0.3 < sum(one["lr"] < 10**-2.5 for one in drawn) / 200 < 0.7  # half of the orders of magnitude
    moved = [perturbed(SPACE, one, generator) for one in drawn]
    assert all(1e-4 <= one["lr"] <= 1e-1 and 2 <= one["depth"] <= 4 for one in moved)


def test_a_grid():
    found = grid({"a": Choice(1, 2), "b": Int(0, 1)})
    assert found == [{"a": 1, "b": 0}, {"a": 1, "b": 1}, {"a": 2, "b": 0}, {"a": 2, "b": 1}]
    with pytest.raises(InvalidArgument, match="which no grid can cover"):
        grid(SPACE)


def test_plain_values():
    found = space_from_plain({"lr": {"loguniform": ["1e-4", 0.1]}, "width": [32, 64], "seed": 1, "n": {"int": [1, 3]}})
    assert found == {"lr": LogUniform(1e-4, 0.1), "width": Choice(32, 64), "seed": Choice(1), "n": Int(1, 3)}


def test_values_that_are_no_lists():
    given = {"a": range(1, 3), "b": torch.tensor([0.5, 1.0]), "c": torch.tensor([1, 2]).numpy(), "d": {"x": 1}.keys()}
    found = checked_space(given)
    assert found == {"a": Choice(1, 2), "b": Choice(0.5, 1.0), "c": Choice(1, 2), "d": Choice(["x"])}
    with pytest.raises(InvalidArgument, match="a is a set"):
        checked_space({"a": {1, 2}})
    assert checked_configs(pandas.DataFrame({"lr": [0.1, 0.2]})) == [{"lr": 0.1}, {"lr": 0.2}]


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({}, "is empty"),
        ({"lr": {"unifrom": [0, 1]}}, "did you mean 'uniform'"),
        ({"lr": {"uniform": [0]}}, "takes"),
        ({"lr": {"uniform": [1, 0]}}, "low is above high"),
        ({"lr": {"loguniform": [0, 1]}}, "above 0"),
        ({"lr": {"uniform": ["a", 1]}}, "not a finite number"),
        ({"lr": []}, "no value"),
        ([1], "mapping"),
    ],
)
def test_bad_spaces(plain, message):
    with pytest.raises(InvalidArgument, match=message):
        space_from_plain(plain)
