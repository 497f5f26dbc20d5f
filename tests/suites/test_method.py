# SPDX-License-Identifier: MIT
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite._runs.failures import NotFinite
from dnnsuite.suites._method import Observations, first_kept, observe


class Counted:
    """A job that counts its steps and when it is waited for."""

    def __init__(self, losses=lambda step: 1.0 / step):
        self.steps, self.waits, self.data_wait_ns, self._losses = 0, [], 0, losses

    def step(self):
        self.steps += 1
        self.data_wait_ns += 3

    @property
    def last_loss(self):
        return torch.tensor(self._losses(self.steps), dtype=torch.float64)

    def synchronize(self):
        self.waits.append(self.steps)


@given(repeat=st.integers(1, 30), number=st.integers(1, 12))
def test_exactly_number_batches_and_one_wait_for_each_observation(repeat, number):
    job, told = Counted(), []
    seen = observe(job, repeat, number, lambda index, seen: told.append((index, len(seen.seconds))))
    assert job.steps == repeat * number
    assert job.waits == [number * i for i in range(repeat + 1)]
    assert told == [(i, i + 1) for i in range(repeat)]
    assert seen.waits_ns == [3 * number] * repeat
    assert len(seen.losses) == min(100, repeat * number)
    assert (seen.first_loss, seen.losses[-1]) == (1.0, pytest.approx(1.0 / (repeat * number)))
    assert all(stop > start for start, stop in zip(seen.starts_ns, seen.stops_ns, strict=True))
    assert seen.timed.train["count"] == repeat - first_kept(repeat)


@given(st.integers(1, 1000))
def test_something_is_always_kept(repeat):
    assert 0 <= first_kept(repeat) <= 10
    assert repeat - first_kept(repeat) >= max(1, repeat // 2)
    assert first_kept(20 + repeat) == 10


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_ends_it(bad):
    job = Counted(lambda step: bad if step == 8 else 1.0)
    with pytest.raises(NotFinite, match=f"the loss of batch 8 is {bad}"):
        observe(job, 5, 3)
    assert job.steps == 9  # it was found at the first wait after it


def test_seconds_are_those_of_the_clock():
    seen = Observations(1, 0, [0, 10_000_000], [2_000_000, 15_000_000], [0, 0])
    assert seen.seconds == pytest.approx([0.002, 0.005])
