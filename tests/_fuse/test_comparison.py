# SPDX-License-Identifier: MIT
import array as c_array
import collections
import dataclasses
import datetime
import decimal
import fractions
import functools
import itertools
import pathlib
import random
import re
import threading
import types
import weakref

import numpy as np
import pytest
import torch

from dnnsuite._fuse.comparison import differences, registered_in, same


class Slotted:
    __slots__ = ("__private", "value")

    def __init__(self, value):
        self.value = self.__private = value

    def __eq__(self, other):
        return True

    __hash__ = None


class Named(dict):
    pass


class Whole(int):
    pass


class Drawer(random.Random):
    pass


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    value: float


def with_value(holder, value):
    holder.value = value
    return holder


#: Makers of objects that code can tell apart for 1 and 2, and not for 1 and 1.
MAKERS = {
    "number": lambda i: i,
    "nan": lambda i: float("nan") if i == 1 else 0.0,
    "nested": lambda i: [1, {"x": (2, [[[[i]]]])}],
    "tensor": lambda i: torch.full((2,), i),
    "array": lambda i: np.full(2, i),
    "array of objects": lambda i: np.array([i, None], dtype=object),
    "numpy number": lambda i: np.float64(i),
    "closure": lambda i: lambda x: x + i,
    "default": lambda i: lambda x, y=i: x + y,
    "attribute of a function": lambda i: with_value(lambda x: x, i),
    "partial": lambda i: functools.partial(max, i),
    "namespace": lambda i: types.SimpleNamespace(a=i),
    "set": lambda i: {0, i},
    "deque": lambda i: collections.deque([i]),
    "bounded deque": lambda i: collections.deque(maxlen=i),
    "order": lambda i: collections.OrderedDict([(1, 1), (2, 2)] if i == 1 else [(2, 2), (1, 1)]),
    "default dict": lambda i: collections.defaultdict(functools.partial(int, i)),
    "fraction": lambda i: fractions.Fraction(1, i),
    "decimal": lambda i: decimal.Decimal(i),
    "time": lambda i: datetime.timedelta(i),
    "path": lambda i: pathlib.Path(str(i)),
    "pattern": lambda i: re.compile("a" * i),
    "slots": Slotted,
    "slots in a dict": lambda i: {"a": Slotted(i)},
    "attribute of a dict": lambda i: with_value(Named(), i),
    "attribute of a number": lambda i: with_value(Whole(3), i),
    "frozen": Frozen,
    "bound method": lambda i: Frozen(i).__repr__,
    "bound builtin": lambda i: [i].index,
    "random": random.Random,
    "random, derived": Drawer,
    "numpy generator": np.random.default_rng,
    "numpy state": np.random.RandomState,
    "torch generator": lambda i: torch.Generator().manual_seed(i),
    "typed array": lambda i: c_array.array("d", [i]),
    "reference": lambda i: weakref.ref(_KEPT[i]),
    "view of a dict": lambda i: types.MappingProxyType({"a": i}),
}
_KEPT = {i: Drawer(i) for i in (1, 2)}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_code_can_tell_apart_is_different(kind):
    make = MAKERS[kind]
    assert same(make(1), make(1))
    assert not same(make(1), make(2))


@pytest.mark.parametrize("make", [lambda: itertools.cycle([1]), lambda: iter([1]), lambda: (i for i in [1])])
def test_what_cannot_be_compared_is_different(make):
    assert not same(make(), make())


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock, object, lambda: torch.nn.Linear(2, 2)])
def test_what_has_no_value_of_its_own_is_the_same(make):
    assert same(make(), make())  # a registered module is compared where it stands in the tree


def test_other_types_and_other_functions_are_different():
    assert not same(1, 1.0)
    assert not same(torch.relu, torch.tanh)
    assert not same(torch.nn.ReLU, torch.nn.GELU)
    assert same(torch.nn.ReLU, torch.nn.ReLU)


def test_an_attribute_may_hold_itself():
    a, b = [1], [1]
    a.append(a)
    b.append(b)
    assert same(a, b)


def test_what_is_nested_too_deeply_is_different():
    models = [torch.nn.Identity() for _ in range(2)]
    for model in models:
        nest = []
        for _ in range(100_000):
            nest = [nest]
        model.nest = nest
    assert differences(models) == {"nest": 1}


def test_differences_name_the_first_model():
    models = [torch.nn.Linear(2, 2) for _ in range(3)]
    assert differences(models) == {}
    models[2].out_features = 5
    models[1].extra = 1
    assert differences(models) == {"extra": 1, "out_features": 2}
    hidden = [types.SimpleNamespace(weight=torch.nn.Parameter(torch.randn(2))) for _ in range(2)]
    for model, one in zip(models, hidden, strict=False):
        model.out_features, model.extra, model.hidden = 2, 1, one
    assert differences(models[:2]) == {}
    assert differences(models[:2], registered_in(models)) == {"hidden": 1}


def test_modules_in_a_list_are_the_same_where_they_have_the_same_place():
    models = [torch.nn.Sequential(torch.nn.Tanh(), torch.nn.ReLU()) for _ in range(3)]
    for index, model in enumerate(models):
        model.order = [model[index == 2], model[1]]
    assert differences(models, registered_in(models)) == {"order": 2}


def class_with(scale, base=object):
    class Made(base):
        limits = (1, scale)

        @property
        def twice(self):
            return 2 * scale

        def forward(self, x):
            return super().__class__, lambda y: x * y * scale

    return Made


def test_classes_are_compared_by_their_code():
    assert same(class_with(2), class_with(2))
    assert same(class_with(2, class_with(3)), class_with(2, class_with(3)))
    assert not same(class_with(2), class_with(3))
    assert not same(class_with(2), class_with(2.0))
    assert not same(class_with(2), class_with(2, dict))
    assert not same(class_with(2, class_with(3)), class_with(2, class_with(4)))
    assert same(class_with(2)(), class_with(2)())


def test_functions_are_compared_by_the_globals_that_they_read():
    def made(text, **names):
        exec(text, names)
        return names["f"]

    text = "def f(x):\n    return [scale * y for y in x]"
    assert same(made(text, scale=2, other=1), made("\n\n" + text, scale=2, other=2))
    assert not same(made(text, scale=2), made(text, scale=3))
    assert not same(made(text, scale=2), made(text.replace("*", "+"), scale=2))
