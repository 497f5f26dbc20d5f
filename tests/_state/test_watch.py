# SPDX-License-Identifier: MIT
import collections
import copy
import gc
import itertools
import random
import types

import numpy as np
import pytest
import torch

from dnnsuite._state import Watch


class Meter:
    __slots__ = ("__dict__", "count")

    def __init__(self):
        self.count, self.sum = 0, torch.zeros(())


def advance(meter):
    meter.count += 1


def nested(depth):
    value = [0]
    for _ in range(depth):
        value = [value]
    return value


def deepest(value):
    while type(value[0]) is list:
        value = value[0]
    return value


CHANGES = [
    ([1, [2]], lambda v: v[1].append(3)),
    ([1], lambda v: v.__setitem__(0, 1.0)),
    ({"a": {"b": 1}}, lambda v: v["a"].update(b=2)),
    ({"act": torch.tanh}, lambda v: v.update(act=torch.sin)),
    ({"layer": torch.nn.ReLU()}, lambda v: v.update(layer=torch.nn.ReLU())),
    (collections.deque([1], 2), lambda v: v.append(1)),
    ({1}, lambda v: v.add(2)),
    ([torch.zeros(2)], lambda v: v[0].add_(1)),
    ([torch.zeros(2)], lambda v: v.__setitem__(0, torch.ones(2))),
    (Meter(), advance),
    (Meter(), lambda v: v.sum.add_(1)),
    (types.SimpleNamespace(inner=[Meter()]), lambda v: advance(v.inner[0])),
    (nested(20), lambda v: deepest(v).append(1)),
    (list(range(10_000)), lambda v: v.__setitem__(9_000, 1)),
    (np.zeros(3), lambda v: v.__iadd__(1)),
    (random.Random(0), lambda v: v.random()),
    (np.random.default_rng(0), lambda v: v.random()),
    (np.random.RandomState(0), lambda v: v.rand()),
    (torch.Generator(), lambda v: torch.rand(2, generator=v)),
    (iter([1, 2]), next),
]


def everything(name, value):
    return True


@pytest.mark.parametrize(("value", "change"), CHANGES)
def test_a_change_in_place_is_told_once(value, change):
    held = {"number": 1, "held": value}
    watch = Watch(held, everything)
    assert watch.changed(held) == []
    change(value)
    assert watch.changed(held) == ["held"]
    assert watch.changed(held) == []


class Counted:
    def __init__(self):
        self.number = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.number += 1
        return self.number


ITERATORS = [
    itertools.cycle([1.0, 0.5, 0.25]), map(abs, iter([1] * 30)), map(abs, Counted()), zip([1] * 30, itertools.count()),
    itertools.chain(iter([1, 2]), [3] * 30), itertools.islice(iter(range(99)), 30), enumerate([0] * 30),
    iter({i: i for i in range(30)}), iter(set(range(30))), reversed([1] * 30), filter(None, [1] * 30), iter("a" * 30),
    itertools.accumulate([1] * 30), itertools.product([1, 2, 3], repeat=3), iter(range(30)),
    itertools.tee([1] * 30)[0], iter(Counted().__next__, -1), iter(collections.deque([1] * 30)),
]  # fmt: skip


@pytest.mark.parametrize("iterator", ITERATORS, ids=lambda one: type(one).__name__)
def test_each_step_of_an_iterator_is_told_also_where_it_takes_from_another(iterator):
    held = {"it": iterator}
    watch = Watch(held, everything)
    for _ in range(20):
        next(iterator)
        assert watch.changed(held) == ["it"]
        assert watch.changed(held) == []


def test_equal_copies_are_no_change_but_other_values_are():
    held = {"a": {"b": [1, torch.ones(2)], "c": Meter()}, "same": 1}
    watch = Watch(held, everything)
    assert watch.changed(copy.deepcopy(held)) == []
    assert watch.changed({**held, "a": {"b": [1, torch.zeros(2)], "c": Meter()}}) == ["a"]
    assert watch.changed({**held, "new": 1}) == ["a", "new"]
    assert watch.changed({"same": 1.0}) == ["same"]


def test_what_is_not_wanted_is_not_told():
    held = {"list": [1], "dict": {}}
    watch = Watch(held, lambda name, value: type(value) is list)
    held["dict"]["a"] = 1
    assert watch.changed(held) == []


def test_a_file_stays_open(tmp_path):
    with open(tmp_path / "log", "w") as file:
        held = {"file": file, "logger": types.SimpleNamespace(stream=file)}
        assert Watch(held, everything).changed(held) == []
        gc.collect()
        file.write("x")


def test_parameters_may_be_written():
    held = {"list": [torch.nn.Parameter(torch.zeros(2))]}
    watch = Watch(held, everything)
    held["list"][0].data.add_(1)
    with torch.no_grad():
        held["list"][0].add_(1)
    assert watch.changed(held) == []


def test_a_look_is_brought_back():
    held = {"list": [1]}
    watch = Watch(held, everything)
    put_back = watch.marks()
    held["list"].append(2)
    assert watch.changed(held) == ["list"]
    held["list"].pop()
    put_back()
    assert watch.changed(held) == []


def test_a_container_that_holds_itself_and_an_iterator_without_a_place():
    value = [1]
    value.append(value)
    held = {"cycle": value, "count": itertools.count(), "generator": (x for x in ())}
    watch = Watch(held, everything)
    assert watch.changed(held) == []
    value[0] = 2
    assert watch.changed(held) == ["cycle"]
