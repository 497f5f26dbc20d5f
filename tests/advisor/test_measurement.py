# SPDX-License-Identifier: MIT
"""Measurements of steps whose length is known."""

import time

import pytest
import torch

from dnnsuite._runs.monitor import Cores
from dnnsuite._runs.turns import Block, take_turns
from dnnsuite.advisor.measurement import measure


class Sleeps:
    """A subject that works for 1 ms, and an array of it for 0.5 ms and 0.25 ms per model."""

    device = "cpu"

    def __init__(self, trials=0):
        self.closed, self._trials = [], trials

    def stepper(self, B, threads):
        subject = self

        class Stepper:
            trials = self._trials if B else 0

            @property
            def settled(self):
                return not self.trials

            def step(self):
                slow = 20e-3 if self.trials else 0.0
                self.trials = max(0, self.trials - 1)
                end = time.process_time() + slow + (1e-3 if B == 0 else 0.5e-3 + 0.25e-3 * B)
                while time.process_time() < end:
                    pass

            def synchronize(self):
                pass

            def close(self):
                subject.closed.append(B)

        return Stepper()

    def plain_step(self):
        model = torch.nn.Linear(10, 20)
        x = torch.randn(4, 10)
        return lambda: model(x).square().sum().backward(), model


def test_times_and_limits():
    before = torch.get_num_threads()
    subject = Sleeps()
    found = measure(subject, threads=1)
    assert found.plain.seconds == pytest.approx(1e-3, rel=0.3)
    assert found.arrays[4].seconds == pytest.approx(1.5e-3, rel=0.3)
    assert list(found.arrays) == [1, 2, 4]
    assert found.alone is None
    assert sorted(subject.closed) == [0, 1, 2, 4]
    assert found.limits.flop == 2 * 2 * 4 * 10 * 20  # forward, and the gradient of the weight
    assert found.limits.model_bytes >= 4 * 4 * 220 + 2 * 4 * 4 * 20
    assert found.limits.peak > 1e8
    assert torch.get_num_threads() == before


def test_steps_that_try_several_ways_are_not_measured():
    found = measure(Sleeps(trials=30), threads=1, Bs=(1,))
    assert found.arrays[1].seconds == pytest.approx(0.75e-3, rel=0.3)


def test_a_thread_of_its_own_is_measured_where_there_are_several(monkeypatch):
    monkeypatch.setenv("DNNSUITE_NEIGHBOURS", "ignore")
    found = measure(Sleeps(), threads=2, Bs=(1,), budget_s=0.5)
    assert found.alone is not None
    assert found.threads == 2


def test_no_more_threads_are_used_than_neighbours_leave_free(monkeypatch):
    monkeypatch.setattr("dnnsuite.advisor.measurement.free_cores", lambda asked: Cores((0,), 2, 1.0))
    found = measure(Sleeps(), threads=2, Bs=(1, 2))
    assert (found.threads, found.alone, found.unknown) == (1, None, "")
    assert found.arrays[2].seconds == pytest.approx(1e-3, rel=0.3)
    assert found.arrays[2].low < found.arrays[2].seconds < found.arrays[2].high


def test_steps_beside_neighbours_are_not_known(monkeypatch):
    def busy(ways, goal, baseline, **_):
        return take_turns({name: lambda i: Block(1.0, "others") for name in ways}, goal, baseline)

    monkeypatch.setattr("dnnsuite.advisor.measurement.take_turns_here", busy)
    found = measure(Sleeps(), threads=2, Bs=(1,), budget_s=0.5)
    assert found.unknown.startswith("the machine was busy: others, in ")
