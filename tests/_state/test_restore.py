# SPDX-License-Identifier: MIT
"""State that a forward changes in objects before it turns out that its models run one by one: array against separate
models in float64."""

import collections
import logging
import operator
import random
import types

import numpy as np
import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite._fuse.code.kept_state import contents_in
from dnnsuite._state import Contents, Unknown

B, STEPS = 3, 6


class Meter:
    def __init__(self):
        self.count, self.past, self.sums = 0, [], {"a": [0.5]}

    def tick(self):
        self.count += 1
        self.past.append(self.count)
        self.sums["a"].append(0.1)
        return self.count + len(self.past) + len(self.sums["a"])


class Slotted:
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0

    def tick(self):
        self.count += 1
        return self.count


class Array:
    def __init__(self):
        self.numbers = np.zeros(2)

    def tick(self):
        self.numbers += 1
        return float(self.numbers[0])


class Tensor:
    def __init__(self):
        self.number = torch.zeros((), dtype=torch.float64)

    def tick(self):
        self.number += 1
        return self.number


class Nested:
    def __init__(self):
        self.held = {"a": [Meter(), collections.Counter()]}

    def tick(self):
        meter, counter = self.held["a"]
        counter["b"] += 1
        return meter.tick() + counter["b"]


KINDS = [Meter, Slotted, Array, Tensor, Nested]


class Gate(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.state = torch.nn.Linear(6, 3), kind()

    def forward(self, x):
        count = self.state.tick()
        h = self.layer(x)
        return ((h if h.mean() > 0 else h * 0.5) / count).square().mean()


class Inner(Gate):
    """Takes a gradient of its own, which no array can."""

    def forward(self, x):
        count = self.state.tick()
        x = x.clone().requires_grad_()
        self.layer(x).square().mean().backward()
        self.zero_grad()
        return (self.layer(x.detach() + x.grad) / count).square().mean()


def made(kind, state):
    torch.manual_seed(0)
    return [kind(state).double() for _ in range(B)]


def losses_of_array(array, batches, threads, width):
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    if not threads:
        found = []
        for x in batches:
            losses = array(x.clone())
            optimizer.zero_grad()
            losses.sum().backward()
            optimizer.step()
            found.append(losses.detach())
        return torch.stack(found)
    with StepRunner(array, optimizer, lambda part, x: part(x), threads=threads, width=width) as runner:
        return torch.stack([runner.step(x).losses().clone() for x in batches])


@pytest.mark.parametrize(("threads", "width"), [(0, None), (1, None), (1, B), (1, 1), (2, None)])
@pytest.mark.parametrize("state", KINDS)
@pytest.mark.parametrize("kind", [Gate, Inner])
def test_as_separate_models(kind, state, threads, width):
    batches = torch.randn(STEPS, B, 5, 6, dtype=torch.float64)
    found = losses_of_array(dnnsuite.fuse(made(kind, state)), batches, threads, width)
    for index, model in enumerate(made(kind, state)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, x in enumerate(batches):
            loss = model(x[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.testing.assert_close(found[step, index], loss.detach())


def test_contents_are_put_back():
    held = {"list": [1, [2]], "set": {1}, "deque": collections.deque([1], 2), "object": Nested()}
    inner, state = held["list"][1], held["object"]
    kept = contents_in([types.SimpleNamespace(**held)])
    assert not kept.changed()
    inner.append(3)
    held["set"].add(2)
    held["deque"].extend([2, 3])
    state.tick()
    state.late = 1
    assert kept.changed()
    kept.restore()
    assert (held["list"], held["set"], list(held["deque"])) == ([1, [2]], {1}, [1])
    assert state.held["a"][0].past == []
    assert not hasattr(state, "late")
    assert not kept.changed()


@pytest.mark.parametrize(
    "value",
    [
        logging.getLogger("dnnsuite.tests"),
        torch.ops.aten.add,
        torch.ops.aten.add.Tensor,
        operator.itemgetter(1),
        random.SystemRandom(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_loggers_operators_and_getters_are_left_alone(value):
    """All handlers of the process can be reached from a logger, with their streams: nothing there is a model's."""
    numbers = [1]
    contents = Contents([value, numbers], {}, lambda value: False, strict=True)
    numbers.append(2)
    assert contents.changed()
    contents.restore()
    assert numbers == [1]


def test_an_iterator_cannot_be_restored():
    """But for a generator that has not begun, as of a decorator of `contextlib`."""
    begun = (number for number in [1, 2])
    Contents([(lambda: (yield))()], {}, lambda value: False, strict=True)
    next(begun)
    for value in (iter([1]), begun):
        with pytest.raises(Unknown, match=r"iterator|generator"):
            Contents([value], {}, lambda value: False, strict=True)


def test_a_variable_that_closes_over_a_tensor_and_an_order_are_restored():
    average, cache = torch.zeros(3), collections.OrderedDict(a=1, b=2)
    first = average

    def step():
        nonlocal average
        average = average + 1
        cache.move_to_end("a")
        cache["c"] = 3

    kept = Contents([step], {}, lambda value: False)
    step()
    assert kept.changed()
    kept.restore()
    assert average is first
    assert list(cache.items()) == [("a", 1), ("b", 2)]
