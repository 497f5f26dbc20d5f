# SPDX-License-Identifier: MIT
"""Loss functions that change a value outside of them, in shards of any width: they are called once in a step, as by
hand, or refused."""

import collections
import itertools
import random
import weakref

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument

B, STEPS = 3, 14
WAYS = [
    {"threads": 1},
    {"threads": 1, "width": 1},
    {"threads": 1, "width": 2},
    {"threads": 2},
    {"threads": 2, "width": 1},
]


def squares(array, x):
    return array(x).square().flatten(1).mean(1)


def counter():
    count = 0

    def loss(array, x, step):
        nonlocal count
        count += 1
        return squares(array, x) * (1 + count % 3)

    return loss, lambda: count


def decorated():
    def loss(array, x, step):
        loss.calls += 1
        return squares(array, x) * (1 + loss.calls % 3)

    loss.calls = 0
    return loss, lambda: loss.calls


def past():
    """Compares with what the models computed in the steps before."""
    kept = collections.deque(maxlen=2)

    def loss(array, x, step):
        found = array(x)
        losses = found.square().flatten(1).mean(1)
        for before in kept:
            losses = losses + (found - before).square().flatten(1).mean(1)
        kept.append(found.detach())
        return losses

    return loss, lambda: [list(one.shape) for one in kept]


def cycle():
    rates = itertools.cycle([1.0, 0.5, 2.0])
    return lambda array, x, step: squares(array, x) * next(rates), lambda: next(rates)


def drawn():
    random.seed(3)
    return lambda array, x, step: squares(array, x) * random.random(), random.random


def cached():
    seen = weakref.WeakKeyDictionary()

    def loss(array, x, step):
        return squares(array, x - seen.setdefault(array, x.mean(1, keepdim=True)))

    return loss, lambda: sorted(tuple(one.shape) for one in seen.values())


def train(make, **options):
    torch.manual_seed(0)
    loss, left = make()
    array = dnnsuite.fuse([torch.nn.Linear(4, 2).double() for _ in range(B)])
    optimizer = optim.SGD(array.parameters(), lr=[0.05, 0.02, 0.08], momentum=0.9)
    batches = torch.randn(STEPS, B, 5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if not options:
        losses = []
        for step, x in enumerate(batches):
            optimizer.zero_grad()
            losses.append(loss(array, x, step))
            losses[-1].sum().backward()
            optimizer.step()
        return torch.stack(losses).detach(), array.weight.detach().clone(), left()
    with dnnsuite.StepRunner(array, optimizer, loss, **options) as runner:
        losses = [runner.step(x, step).losses().clone() for step, x in enumerate(batches)]
        assert runner.mode.startswith("eager: ")
    return torch.stack(losses), array.weight.detach().clone(), left()


@pytest.mark.parametrize("ways", WAYS, ids=str)
@pytest.mark.parametrize("make", [counter, decorated, past, cycle, drawn, cached])
def test_it_is_called_once_in_a_step(make, ways):
    for mine, by_hand in zip(train(make, **ways), train(make), strict=True):
        torch.testing.assert_close(mine, by_hand)


def late():
    """Changes nothing in the first steps, and then a value that comes back to what it was."""
    on = False

    def loss(array, x, step):
        nonlocal on
        if step >= 6:
            on = not on
        return squares(array, x) * (2.0 if on else 1.0)

    return loss, lambda: on


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_it_is_called_once_from_the_step_on_that_changes_a_value(ways):
    try:
        found = train(late, **ways)
    except InvalidArgument as error:  # shards that read the step's number in replays take the step themselves
        if ways["threads"] == 1 or "is called for each of several shards" not in str(error):
            raise
        return
    for mine, by_hand in zip(found, train(late), strict=True):
        torch.testing.assert_close(mine, by_hand)


def test_models_of_batches_that_differ_in_size_run_one_by_one():
    count, array = [0], dnnsuite.fuse([torch.nn.Linear(4, 2) for _ in range(B)])

    def loss(array, x):
        count[0] += 1
        return squares(array, x)

    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.1), loss, threads=1) as runner:
        for _ in range(4):
            runner.step([torch.randn(size, 4) for size in (2, 3, 4)]).losses()
    assert count == [4 * B]
