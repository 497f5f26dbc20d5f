# SPDX-License-Identifier: MIT
import collections
import fractions
import functools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dnnsuite._fuse.state import differences, registered_in, same, stacked_parameter, stacked_tensor
from dnnsuite.errors import InvalidArgument


def adder(n):
    return lambda x: x + n


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (float("nan"), float("nan"), True),
        ([1, {"x": (2,)}], [1, {"x": (2,)}], True),
        ([1, {"x": (2,)}], [1, {"x": (3,)}], False),
        (torch.ones(2), torch.ones(2), True),
        (torch.ones(2), torch.zeros(2), False),
        (adder(1), adder(1), True),
        (adder(1), adder(2), False),
        (torch.relu, torch.tanh, False),
        (functools.partial(max, 1), functools.partial(max, 1), True),
        (functools.partial(max, 1), functools.partial(max, 2), False),
        (SimpleNamespace(a=1), SimpleNamespace(a=1), True),
        (SimpleNamespace(a=1), SimpleNamespace(a=2), False),
        ({1, 2}, {2, 1}, True),
        (torch.nn.ReLU, torch.nn.ReLU, True),
        (torch.nn.ReLU, torch.nn.GELU, False),
        (np.ones(2), np.ones(2), True),
        (np.ones(2), np.zeros(2), False),
        (collections.deque([1]), collections.deque([1]), True),
        (collections.deque([1]), collections.deque([2]), False),
        (fractions.Fraction(1, 2), fractions.Fraction(1, 2), True),
        (fractions.Fraction(1, 2), fractions.Fraction(1, 3), False),
        ([[[[[[[[1]]]]]]]], [[[[[[[[2]]]]]]]], False),
        (torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), True),  # compared where it stands in the tree
    ],
)
def test_same(a, b, expected):
    assert same(a, b) == expected


def test_an_attribute_may_hold_itself():
    a, b = [1], [1]
    a.append(a)
    b.append(b)
    assert same(a, b)


def test_differences_name_the_first_model():
    models = [torch.nn.Linear(2, 2) for _ in range(3)]
    assert differences(models) == {}
    models[2].out_features = 5
    models[1].extra = 1
    assert differences(models) == {"extra": 1, "out_features": 2}
    hidden = [SimpleNamespace(weight=torch.nn.Parameter(torch.randn(2))) for _ in range(2)]
    for model, one in zip(models, hidden, strict=False):
        model.out_features, model.extra, model.hidden = 2, 1, one
    assert differences(models[:2]) == {}
    assert differences(models[:2], registered_in(models)) == {"hidden": 1}


def test_stacks_and_names_what_differs():
    assert stacked_tensor("x", [torch.zeros(2), torch.ones(2)]).tolist() == [[0, 0], [1, 1]]
    with pytest.raises(InvalidArgument, match=r"models 0 and 1 differ: x is \[2\] and \[3\]"):
        stacked_tensor("x", [torch.zeros(2), torch.ones(3)])
    with pytest.raises(InvalidArgument, match="dtype"):
        stacked_tensor("x", [torch.zeros(2), torch.ones(2).double()])
    assert stacked_parameter("w", [torch.nn.Parameter(torch.ones(1))] * 2).shape == (2, 1)
