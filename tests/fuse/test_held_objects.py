# SPDX-License-Identifier: MIT
"""Objects of all kinds in attributes of models: they train as apart, by hand and by a runner."""

import collections
import dataclasses
import enum
import functools
import io
import logging
import operator
import queue
import random
import re
import threading
import types
import typing
import weakref

import numpy as np
import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from trained_models import check_trained


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass(frozen=True)
class Settings:
    scale: float = 0.5
    color: Color = Color.RED


class Named(typing.NamedTuple):
    scale: float
    tensor: torch.Tensor


class Node:
    """Part of a tree whose parts know their parent."""

    def __init__(self, parent=None):
        self.parent, self.parts, self.scale = parent, [], 2.0
        if parent is not None:
            parent.parts.append(self)


def tree():
    root = Node()
    Node(Node(root))
    return root


def logger_and_settings():
    """What most code bases hold in a model."""
    return types.SimpleNamespace(log=logging.getLogger("dnnsuite.tests.held"), of=Settings(), color=Color.BLUE)


HELD = {
    "a logger": (
        lambda: logging.getLogger("dnnsuite.tests.held"),
        lambda held, h: h * (1 if held.isEnabledFor(10) else 2),
    ),
    "a logger and settings": (logger_and_settings, lambda held, h: h * held.of.scale * held.color.value),
    "a logger's adapter": (
        lambda: logging.LoggerAdapter(logging.getLogger("dnnsuite.tests.held"), {}),
        lambda held, h: h,
    ),
    "a tree that knows its parents": (tree, lambda held, h: h * held.parts[0].parent.scale),
    "a partial": (
        lambda: functools.partial(torch.nn.functional.leaky_relu, negative_slope=0.3),
        lambda held, h: held(h),
    ),
    "an itemgetter": (lambda: operator.itemgetter(0), lambda held, h: held((h, 1))),
    "a named tuple": (
        lambda: Named(2.0, torch.ones(4, dtype=torch.float64)),
        lambda held, h: h * held.scale * held.tensor,
    ),
    "operators of torch": (
        lambda: [torch.ops.aten.relu, torch.ops.aten.relu.default, torch.ops.aten],
        lambda held, h: held[0](h) + held[1](h) + held[2].tanh(h),
    ),
    "locks": (lambda: [threading.Lock(), threading.RLock()], lambda held, h: _within(held, h)),
    "an event and a queue": (lambda: [threading.Event(), queue.Queue()], lambda held, h: h + held[0].is_set()),
    "modules of Python": (lambda: {"functional": torch.nn.functional}, lambda held, h: held["functional"].silu(h)),
    "limits of a type": (lambda: torch.finfo(torch.float32), lambda held, h: h.clamp(max=held.max)),
    "a proxy of a mapping": (lambda: types.MappingProxyType({"scale": 2.0}), lambda held, h: h * held["scale"]),
    "a pattern": (lambda: re.compile("a+"), lambda held, h: h * len(held.findall("a"))),
    "text in memory": (lambda: io.StringIO("1 2"), lambda held, h: h * len(held.getvalue())),
    "a chain of mappings": (lambda: collections.ChainMap({"a": 1}, {"b": 2.0}), lambda held, h: h * held["b"]),
}


def _within(locks, h):
    with locks[0], locks[1]:
        return h * 2


def model_with(make, use, ask):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.held = torch.nn.Linear(4, 4), make()

        def forward(self, x):
            h = use(self.held, self.inner(x).tanh())
            return h * min(1.0, float(h.detach().norm())) if ask else h

    return Net


@pytest.mark.parametrize("ask", [False, True], ids=["at once", "model by model"])
@pytest.mark.parametrize("name", HELD)
def test_models_that_hold_it_train_as_apart(name, ask):
    check_trained(model_with(*HELD[name], ask))


def test_a_file_that_each_model_opened_is_its_own(tmp_path):
    numbers = iter(range(100))

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.file = torch.nn.Linear(4, 4), (tmp_path / str(next(numbers))).open("w")

        def forward(self, x):
            return self.inner(x)

    made = []
    array = check_trained(lambda: made.append(Net()) or made[-1], runner=False)
    assert [model.file for model in array] == [model.file for model in made[-2:]]
    for model in made:
        model.file.close()


class Holder:
    def __init__(self, module):
        self.module = module


REFERENCES = {
    "reference": (weakref.ref, lambda held: held()),
    "proxy": (weakref.proxy, lambda held: held),
    "weak method": (lambda parent: weakref.WeakMethod(parent.found), lambda held: held()()),
    "method": (lambda parent: parent.found, lambda held: held()),
    "function": (lambda parent: lambda: parent, lambda held: held()),
    "attribute": (lambda parent: parent, lambda held: held),
    "list": (lambda parent: [parent], lambda held: held[0]),
    "object": (Holder, lambda held: held.module),
}


def family(refer, find, ask=False, modes=("tanh",)):
    """A model with a part that computes with its parent, which it refers to past torch."""
    numbers = iter(range(100))

    class Child(torch.nn.Module):
        def __init__(self, parent):
            super().__init__()
            self.inner, self.mode = torch.nn.Linear(4, 4), modes[next(numbers) % len(modes)]
            vars(self)["parent"] = refer(parent)

        def forward(self, x):
            h = getattr(torch, self.mode)(self.inner(x)) + find(self.parent).outer(x)
            return h * min(1.0, float(h.detach().norm())) if ask else h

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.outer = torch.nn.Linear(4, 4)
            self.child = Child(self)

        def found(self):
            return self

        def forward(self, x):
            return self.child(x)

    return Net


@pytest.mark.parametrize("ask", [False, True], ids=["at once", "model by model"])
@pytest.mark.parametrize("name", REFERENCES)
def test_a_part_that_refers_to_its_parent_refers_to_the_arrays(name, ask):
    """Where it cannot run for all models at once, its parent runs model by model with it."""
    check_trained(family(*REFERENCES[name], ask))


@pytest.mark.parametrize("name", ["reference", "attribute", "list"])
def test_parts_that_differ_and_refer_to_their_parent(name):
    check_trained(family(*REFERENCES[name], modes=("tanh", "sigmoid")))


def test_a_proxy_in_a_part_that_differs_is_refused():
    make = family(*REFERENCES["proxy"], modes=("tanh", "sigmoid"))
    with pytest.raises(InvalidArgument, match=r"Child\.parent is a weakref\.proxy in a part.*: keep a weakref\.ref"):
        dnnsuite.fuse([make(), make()])


@pytest.mark.parametrize("refer", [weakref.proxy, lambda module: module], ids=["proxy", "module"])
def test_a_parent_that_torch_takes_for_a_part_is_refused(refer):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.child = torch.nn.Identity()
            self.child.parent = refer(self)

    with pytest.raises(InvalidArgument, match=r"child\.parent is a module that holds this one.*: set it past torch"):
        dnnsuite.fuse([Net(), Net()])


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: torch.Generator().manual_seed(3), lambda g: torch.rand(4, generator=g, dtype=torch.float64)),
        (lambda: np.random.default_rng(3), lambda g: torch.from_numpy(g.random(4))),
        (lambda: np.random.RandomState(3), lambda g: torch.from_numpy(g.random_sample(4))),
        (lambda: random.Random(3), lambda g: g.random()),
    ],
    ids=["torch", "NumPy", "NumPy's old one", "Python"],
)
def test_a_generator_of_the_users_draws_once_where_a_forward_is_turned_back(make, draw):
    """Numbers that an abandoned try has drawn are drawn again."""
    check_trained(model_with(make, lambda held, h: h + draw(held), ask=True), runner=False)
