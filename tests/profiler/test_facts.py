# SPDX-License-Identifier: MIT
"""Figures that the rules look at, from a profile with known operators."""

import os

import pytest

from dnnsuite import profiler
from dnnsuite.profiler._facts import cpu_busy_pct, displaced_pct, facts
from profiler_loops import Operators, loop


def test_facts_of_a_loop():
    with profiler.profile(instruments=[Operators()], about={"precision": "fp32", "B": 4}) as p:
        loop(p, 3)
    found = facts(p.data)
    assert found.shares == dict(zip(p.breakdown["class"], p.breakdown["share_pct"], strict=True))
    assert (found.ops_per_step, found.mean_op_us) == pytest.approx((3, 500))
    assert (found.precision, found.models, found.on_gpu) == ("fp32", 4, False)
    assert found.overhead_pct is None
    assert found.cpus == len(os.sched_getaffinity(0))


def test_a_loop_that_computes_in_one_thread_keeps_at_most_its_cpus_busy():
    with profiler.profile() as p:
        loop(p, 3, 20_000_000)
    assert 0 < cpu_busy_pct(p.data) <= 101
    assert 0 <= displaced_pct(p.data) <= 101


def test_of_nothing_there_is_no_figure():
    with profiler.profile(schedule=profiler.schedule(start_iteration=9)) as p:
        pass
    assert cpu_busy_pct(p.data) is None
    assert displaced_pct(p.data) is None
