# SPDX-License-Identifier: MIT
"""A runner's steps while it searches for the width of its shards, or compares them with a loop."""

import itertools
import time

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, nn, optim
from helpers import make_models
from small_steps import batches, loss, make

pytestmark = pytest.mark.usefixtures("own_answers")
B = 4


@pytest.mark.parametrize(("listed", "expected"), [(None, [4, 4, 2, 2, 2]), (6, [4, 4, 1, 2, 2, 2])])
def test_a_search_of_widths_records_one_narrow_shard_beside_a_wide_one(listed, expected, monkeypatch):
    """Before the recording of one model serves all, the others take their steps as written together, unless each has
    a batch of its own in the step `listed`."""
    clock = (0.0004 * n * n for n in itertools.count(5))  # neither light nor heavy, and slower and slower
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    torch.widths_of_tests = written = []  # guards do not look into installed packages

    mine = object()

    def told(part, x, y):
        assert mine is not None  # no other runner has this code
        torch.widths_of_tests.append(part.B)
        return loss(part, x, y)

    (array, optimizer), (other, own) = make(4), make(4)
    with (
        StepRunner(array, optimizer, told, threads=1, audit=0) as runner,
        StepRunner(other, own, loss, threads=1, width=4) as wide,
    ):
        for step, (x, y) in enumerate(batches(4, 16)):
            batch = (list(x), list(y)) if step == listed else (x, y)
            assert torch.equal(runner.step(*batch).losses(), wide.step(x, y).losses())
        assert runner.settled
    assert all(map(torch.equal, array.state_dict().values(), other.state_dict().values()))
    assert written == expected


class Remembers(torch.nn.Module):
    """Its iterator and its list are each model's own, and no guard can compare them."""

    def __init__(self):
        super().__init__()
        self.a, self.scales, self.seen = torch.nn.Linear(4, 4), itertools.cycle([1.0, 0.5, 0.25]), []

    def forward(self, x):
        self.seen.append(next(self.scales))
        return self.a(x) * self.seen[-1] * (1 if len(self.seen) % 4 else 2)


@pytest.mark.parametrize("second_s", [0.002, 0.02, 0.2])
@pytest.mark.parametrize("capture", [False, True])
def test_trials_of_widths_and_loops_lose_nothing_of_python(capture, second_s, monkeypatch):
    """Whatever the clock says, and so whichever way runs a step."""
    clock = itertools.count(step=second_s)
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    separate, xs = make_models(Remembers, 3), torch.randn(14, 3, 6, 4)
    array = dnnsuite.fuse(make_models(Remembers, 3))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    theirs = [torch.optim.SGD(model.parameters(), lr=0.1) for model in separate]

    def loss(part, x):
        return part(x).square().flatten(1).mean(1)

    with dnnsuite.StepRunner(array, optimizer, loss, threads=1, capture=capture) as runner:
        for x in xs:
            losses = runner.step(x).losses()
            for model, own, one, optim in zip(separate, losses, x, theirs, strict=True):
                optim.zero_grad()
                expected = model(one).square().mean()
                expected.backward()
                optim.step()
                torch.testing.assert_close(own, expected.detach())
    for index, model in enumerate(separate):
        assert array[index].seen == model.seen


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.a(x) if x.sum() > 0 else self.b(x)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [None, 1, 3])
def test_coverage_tells_of_the_shards_of_a_runner(width, threads):
    array = dnnsuite.fuse(make_models(Gate, 3))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    loss = lambda part, x: part(x).square().mean((1, 2))  # noqa: E731
    with dnnsuite.StepRunner(array, optimizer, loss, width=width, threads=threads) as runner:
        for _ in range(20):
            runner.step(torch.randn(3, 2, 4)).losses()
        runner.synchronize()
    (cover,) = array.coverage()
    assert (cover.name, cover.layer, cover.how) == ("", "Gate", "per model")
    assert cover.reason


class Headed(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.head = base, torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.base(x)))


def cross_entropy(part, x, y):
    return nn.functional.cross_entropy(part(x), y)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_runner_has_the_same_bits_while_it_tries_and_after_it(threads):
    torch.manual_seed(0)
    base = torch.nn.Linear(8, 8).requires_grad_(False)
    models = [Headed(base) for _ in range(B)]
    batches = [(torch.randn(B, 4, 8), torch.randint(2, (B, 4))) for _ in range(24)]
    arrays = [dnnsuite.fuse(models) for _ in range(2)]
    opts = [optim.SGD(array.head.parameters(), lr=[0.1] * B) for array in arrays]
    with (
        dnnsuite.StepRunner(arrays[0], opts[0], cross_entropy, threads=1, width=3) as other,
        dnnsuite.StepRunner(arrays[1], opts[1], cross_entropy, threads=threads) as runner,
    ):
        for x, y in batches:
            assert torch.equal(runner.step(x, y).losses(), other.step(x, y).losses())
        assert runner.settled
        arrays[1].drop(0, opts[1])
        for x, y in batches[:2]:
            runner.step(x[1:], y[1:])
        assert runner.settled
