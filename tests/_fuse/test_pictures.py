# SPDX-License-Identifier: MIT
import collections
import copy
import itertools
import random

import numpy as np
import pytest
import torch

from dnnsuite._fuse.left_tensors import may_change_in_place, picture


class Meter:
    __slots__ = ("__dict__", "count")

    def __init__(self):
        self.count, self.sum = 0, torch.zeros(())


def advance(meter):
    meter.count += 1


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, [2]], lambda v: v[1].append(3)),
        ({"a": {"b": 1}}, lambda v: v["a"].update(b=2)),
        (collections.deque([1], 2), lambda v: v.append(1)),
        ({1}, lambda v: v.add(2)),
        ([torch.zeros(2)], lambda v: v[0].add_(1)),
        ([torch.zeros(2)], lambda v: v.__setitem__(0, torch.ones(2))),
        (Meter(), advance),
        (Meter(), lambda v: v.sum.add_(1)),
        (np.zeros(3), lambda v: v.__iadd__(1)),
        (random.Random(0), lambda v: v.random()),
        (np.random.default_rng(0), lambda v: v.random()),
        (np.random.RandomState(0), lambda v: v.rand()),
        (torch.Generator(), lambda v: torch.rand(2, generator=v)),
        (iter([1, 2]), next),
    ],
)
def test_a_change_in_place_is_another_picture(value, change):
    before = picture(value)
    assert before == picture(value)
    assert may_change_in_place("name", value)
    change(value)
    assert before != picture(value)


def test_equal_copies_have_equal_pictures():
    value = {"a": [1, torch.ones(2)], "b": Meter()}
    assert picture(value) == picture(copy.deepcopy(value))
    assert picture(value) != picture({"a": [1, torch.zeros(2)], "b": Meter()})


def test_parameters_are_no_contents():
    value = [torch.nn.Parameter(torch.zeros(2))]
    before = picture(value)
    value[0] = torch.nn.Parameter(torch.ones(2))
    assert before == picture(value)


def test_a_container_that_holds_itself():
    value = [1]
    value.append(value)
    assert picture(value) is not None


@pytest.mark.parametrize("value", [1, "a", None, torch.nn.Linear(1, 1), len, Meter, torch.float32])
def test_values_without_contents_that_change(value):
    assert not may_change_in_place("name", value)


def test_an_iterator_that_does_not_say_where_it_is():
    assert picture(itertools.count()) is not None
    assert picture(x for x in ()) == picture(x for x in ())
