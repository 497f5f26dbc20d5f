# SPDX-License-Identifier: MIT
"""Each kind of value: one change of it is seen, and no change is seen without one."""

import array
import collections
import collections.abc
import contextvars
import ctypes
import enum
import functools
import inspect
import io
import itertools
import logging
import operator
import pathlib
import random
import threading
import weakref
from types import MappingProxyType
from typing import Callable  # noqa: UP035

import numpy as np
import pytest
import torch

from dnnsuite._state import Walk, register


class Holds:
    def __init__(self, value):
        self.value = value

    def method(self):
        return self.value


class Hidden(collections.UserDict):
    pass


class Named(dict):
    pass


def counting(start):
    yield start


target, table = Holds(1), {"a": 1}
CHANGES = {
    "list": ([1], lambda v: v.append(2)),
    "long list": ([1.0] * 100, lambda v: v.__setitem__(70, 2.0)),
    "dict": ({"a": {"b": 1}}, lambda v: v["a"].update(b=2)),
    "long dict": ({str(i): i for i in range(100)}, lambda v: v.update({"70": 0})),
    "attributes of a dict": (Named(a=1), lambda v: setattr(v, "more", 1)),
    "set": ({1}, lambda v: v.add(2)),
    "deque": (collections.deque([1]), lambda v: v.append(2)),
    "UserDict": (Hidden(a=1), lambda v: v.update(a=2)),
    "array": (np.zeros(3), lambda v: v.__setitem__(1, 2.0)),
    "array of objects": (np.array([[1], "a"], dtype=object), lambda v: v[0].append(2)),
    "array.array": (array.array("d", [1.0]), lambda v: v.append(2.0)),
    "bytearray": (bytearray(1), lambda v: v.__setitem__(0, 1)),
    "ctypes": ((ctypes.c_int * 3)(), lambda v: v.__setitem__(0, 1)),
    "variable": (contextvars.ContextVar("v", default=1), lambda v: v.set(2)),
    "weak reference": (weakref.ref(target), lambda v: setattr(v(), "value", v().value + 1)),
    "proxy": (weakref.proxy(target), lambda v: setattr(v, "value", v.value + 1)),
    "partial": (functools.partial(print, [1]), lambda v: v.args[0].append(2)),
    "bound method": (Holds(1).method, lambda v: setattr(v.__self__, "value", 2)),
    "bound builtin": ([1].append, lambda v: v(2)),
    "view": (MappingProxyType(table), lambda v: table.update(a=2)),
    "keys": (table.keys(), lambda v: table.update(b=2)),
    "Random": (random.Random(0), lambda v: v.random()),
    "numpy generator": (np.random.default_rng(0), lambda v: v.random()),
    "RandomState": (np.random.RandomState(0), lambda v: v.rand()),
    "torch.Generator": (torch.Generator(), lambda v: v.manual_seed(3)),
    "module": (torch.nn.Sequential(torch.nn.Dropout(0.5)), lambda v: v.eval()),
    "hook": (torch.nn.Linear(1, 1), lambda v: v.register_forward_hook(print)),
    "class": (type("Own", (), {"value": [1]}), lambda v: v.value.append(2)),
    "error": (ValueError([1]), lambda v: v.args[0].append(2)),
    "logger": (logging.getLogger("a.b"), lambda v: logging.getLogger("a").setLevel("DEBUG")),
    "event": (threading.Event(), lambda v: v.set()),
    "generator that has not begun": (counting(1), next),
    "class method": (classmethod(noted := lambda kind: kind), lambda v: setattr(noted, "note", 1)),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_is_seen(kind):
    value, change = CHANGES[kind]
    walk = Walk(value)
    assert walk.unknown == []
    hash(walk.snapshot)
    assert walk.same()
    assert Walk(value).snapshot == walk.snapshot
    change(value)
    assert not walk.same()
    assert Walk(value).snapshot != walk.snapshot


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [
        Color.RED, pathlib.Path("a"), logging.getLogger("a"), threading.Lock(), np.float32(1), slice(1, 2), print,
        operator.attrgetter("a"), io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False))), torch.ones(2),
        torch.ops.aten.add.Tensor, functools.lru_cache(len), object(), torch.float32, int | str, list[int],
        Callable[..., int], inspect.signature(print), vars(collections.abc.Sized)["_abc_impl"], str.join, int.__add__,
    ],
)  # fmt: skip
def test_what_decides_nothing_is_known(value):
    walk = Walk(value)
    assert walk.unknown == []
    str(value)  # which some remember
    assert walk.same()
    assert Walk(value).snapshot == walk.snapshot


@pytest.mark.parametrize(
    "value",
    [
        iter([1]), itertools.count(), (i for i in ()), open(__file__), io.StringIO("a"), threading.local(),  # noqa: SIM115
        random.SystemRandom(), np.zeros(2**20 + 1, dtype=np.int8), bytearray(2**20 + 1),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_unknown(value):
    assert len(Walk([value]).unknown) == 1


def test_a_kind_of_ones_own():
    class Opaque:
        def __init__(self):
            self.inside = [1]

    register(Opaque, lambda walk, value, at: ("opaque", walk.watch_by(lambda: len(value.inside))))
    value = Opaque()
    walk = Walk({"a": value})
    value.inside[0] = 2
    assert walk.same()
    value.inside.append(3)
    assert not walk.same()


def test_a_logger_is_what_it_logs_and_what_its_user_has_set():
    class Counting(logging.Logger):
        pass

    logger = Counting("tests.counting")
    walk = Walk(logger)
    logger.isEnabledFor(logging.INFO)  # which the logger notes
    assert walk.same()
    logger.counts = [1]
    assert not walk.same()
    walk = Walk(logger)
    assert walk.same()
    logger.counts.append(2)
    assert Walk(logger).snapshot != walk.snapshot
    logger.setLevel(logging.ERROR)
    assert not walk.same()
