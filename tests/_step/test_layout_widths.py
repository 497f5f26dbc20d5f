# SPDX-License-Identifier: MIT
"""Widths of shards for arrays that share state: measured for each layout of a batch, by the runner as by hand."""

import pytest
import torch

import dnnsuite
from dnnsuite import _tune as tune
from dnnsuite import nn, optim
from dnnsuite._step.shard_widths import LayoutWidths, layout_of

B = 4


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """A table of this test's own."""
    made = tune.TuningTable(tmp_path / "tune.json")
    monkeypatch.setattr(tune, "table", lambda: made)


def own(rows):
    return torch.zeros(B, rows, 8)


def shared(rows):
    return dnnsuite.stack(torch.zeros(rows, 8), B=B)


def measured(widths, batch, seconds_of):
    """Widths that were tried, and the one that was chosen."""
    tried = []
    while not (trial := widths.follow(batch)[0]).done:
        tried.append(trial.width)
        trial.add(seconds_of[trial.width])
    return sorted(set(tried)), trial.width


def new():
    return LayoutWidths(B, 1, ("an array",), 1)


def test_a_layout_is_known_by_what_is_shared_and_by_its_size():
    assert layout_of(({"x": own(8)}, shared(2))) == ((False, 7), (True, 5))
    assert layout_of((own(5), 3, None)) == layout_of((own(6),))  # 40 and 48 numbers
    assert layout_of((own(5),)) != layout_of((own(50),)) != layout_of((shared(50),))


def test_each_layout_has_the_width_that_was_fastest():
    widths = new()
    assert measured(widths, own(2), {1: 2.0, 4: 1.0}) == ([1, 4], 4)
    widths.follow(own(64))
    assert measured(widths, own(64), {1: 1.0, 4: 2.0}) == ([1, 4], 1)
    assert [widths.follow(own(2))[0].width for _ in range(2)] == [1, 4]  # once more before it is followed
    assert measured(new(), own(64), {}) == ([], 1)  # from the table


def test_one_batch_of_another_size_is_neither_followed_nor_timed():
    widths = new()
    first, _ = widths.follow(own(64))
    assert widths.follow(own(2)) == (first, False)
    assert widths.follow(own(64)) == (first, True)
    assert widths.follow(own(2)) == (first, False)
    assert widths.follow(own(2))[1]
    assert widths.follow(own(2))[0] is not first


def test_a_shared_batch_needs_no_trial():
    assert measured(new(), (shared(8), own(1)), {}) == ([], 4)
    assert measured(new(), (own(8), shared(1)), {1: 1.0, 4: 2.0})[1] == 1


def test_an_edit_keeps_what_was_found():
    widths = new()
    measured(widths, own(64), {1: 1.0, 4: 2.0})
    assert measured(widths.after_edit(3), own(64), {}) == ([], 1)
    other = new()
    measured(other, own(2), {1: 3.0, 4: 2.0})
    assert measured(other.after_edit(3), own(2), {}) == ([], 3)


class Headed(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.head = base, torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.base(x)))


def loss(part, x, y):
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
        dnnsuite.StepRunner(arrays[0], opts[0], loss, threads=1, width=3) as other,
        dnnsuite.StepRunner(arrays[1], opts[1], loss, threads=threads) as runner,
    ):
        for x, y in batches:
            assert torch.equal(runner.step(x, y).losses(), other.step(x, y).losses())
        assert runner.settled
        arrays[1].drop(0, opts[1])
        for x, y in batches[:2]:
            runner.step(x[1:], y[1:])
        assert runner.settled
