# SPDX-License-Identifier: MIT
import time

import pytest

from dnnsuite._runs.monitor import Cores
from dnnsuite._runs.turn_session import take_turns_here
from dnnsuite._runs.turns import Goal

CORES = Cores((0,), 1, 0.0)


def works(seconds: float, made: list[int] | None = None):
    """A way whose steps use so much CPU time; `made` gets the steps of each call."""

    def way(steps: int) -> None:
        if made is not None:
            made.append(steps)
        until_s = time.process_time() + steps * seconds
        while time.process_time() < until_s:
            pass

    return way


def test_functions_are_compared_by_their_time():
    slow, fast = [], []
    found = take_turns_here(
        {"slow": works(2e-3, slow), "fast": works(1e-3, fast)}, Goal(rounds=8), "slow", cores=CORES,
        clock=time.process_time, by_cpu_time=True, segment_s=4e-3,
    )  # fmt: skip
    assert found.ratio("fast").value == pytest.approx(2.0, rel=0.15)
    assert (slow[-8:], fast[-8:]) == ([2] * 8, [4] * 8)
    assert min(found.seconds("slow")) == pytest.approx(2e-3, rel=0.15)


def test_time_of_other_processes_counts_where_cpu_time_does():
    found = take_turns_here(
        {"alone": lambda steps: 1.0 * steps}, Goal(rounds=3), cores=CORES, clock=lambda: 0.0, by_cpu_time=True, steps=5
    )
    assert found.seconds("alone") == [1.0, 1.0, 1.0]


def test_a_stopwatch_takes_the_place_of_the_clock():
    calls: list[int] = []
    found = take_turns_here(
        {"gpu": calls.append}, Goal(rounds=2), cores=CORES, steps=3, by_cpu_time=True,
        stopwatch=lambda run, times: (run(), 6.0)[1],
    )  # fmt: skip
    assert calls == [3, 3]
    assert found.seconds("gpu") == [2.0, 2.0]
