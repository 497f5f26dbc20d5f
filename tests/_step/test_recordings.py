# SPDX-License-Identifier: MIT
"""The number of recordings that a runner tells: what its user's steps have made, and what an edit has left."""

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from helpers import make_models

B = 3


def make(B=B):
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(4, 2), B))
    return array, optim.SGD(array.parameters(), lr=0.1)


def stepped(runner, array, samples=5, steps=4):
    for _ in range(steps):
        runner.step(torch.randn(array.B, samples, 4)).losses()
    return runner.recordings


def counted(array, x):
    return array(x).square().mean((1, 2))


def test_the_first_replay_has_one_recording_and_each_layout_and_flag_makes_one():
    array, optimizer = make()
    doubled = False

    def loss(part, x):
        return counted(part, x) * (2 if doubled else 1)

    with StepRunner(array, optimizer, loss, threads=1) as runner:
        assert runner.recordings == 0
        assert stepped(runner, array, steps=1) == 0  # it is compared in the second step
        assert stepped(runner, array) == 1
        assert stepped(runner, array, samples=7) == 2
        assert stepped(runner, array, samples=5) == 2
        doubled = True
        assert stepped(runner, array, samples=5) == 3
        doubled = False
        assert stepped(runner, array, samples=7) == 3


def test_a_number_that_becomes_an_input_leaves_one():
    array, optimizer = make()
    factor = 1.0

    def loss(part, x):
        return counted(part, x) * factor

    with StepRunner(array, optimizer, loss, threads=1) as runner:
        assert stepped(runner, array) == 1
        for step in range(8):
            factor = 1.0 + step / 8
            stepped(runner, array, steps=1)
        assert (runner.mode, runner.recordings) == ("captured", 1)


def test_each_path_through_the_code_has_one():
    array, optimizer = make()

    def loss(part, x):
        return counted(part, x) * (2 if (x[:, 0] > 0).all() else 1)

    above, below = torch.ones(B, 5, 4), -torch.ones(B, 5, 4)
    with StepRunner(array, optimizer, loss, threads=1) as runner:
        for expected, batch in ((1, above), (2, below), (2, above)):
            for _ in range(4):
                runner.step(batch)
            assert runner.recordings == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_shards_that_share_a_recording_count_it_once_also_after_an_edit(threads):
    array, optimizer = make()
    with StepRunner(array, optimizer, counted, threads=threads, width=1) as runner:
        assert stepped(runner, array) == 1
        array.drop(1, optimizer)
        assert stepped(runner, array, steps=1) == 1
        assert stepped(runner, array, samples=6) == 2


def test_shards_of_two_widths_have_a_recording_each():
    array, optimizer = make()
    with StepRunner(array, optimizer, counted, threads=1, width=2) as runner:
        assert stepped(runner, array) == 2
        array.drop(0, optimizer)
        assert stepped(runner, array) == 1


def test_steps_that_are_eager_have_none_and_refresh_leaves_none():
    array, optimizer = make()
    with StepRunner(array, optimizer, counted, capture=False) as runner:
        assert stepped(runner, array) == 0
    numbers = iter(range(100))

    def loss(part, x):
        return counted(part, x) * (1 + next(numbers))

    with StepRunner(array, optimizer, loss, threads=1) as runner:
        assert stepped(runner, array) == 0
        assert runner.mode.startswith("eager: ")
    with StepRunner(array, optimizer, counted, threads=1) as runner:
        assert stepped(runner, array) == 1
        runner.refresh()
        assert runner.recordings == 0
        assert stepped(runner, array) == 1
