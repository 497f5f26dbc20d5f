# SPDX-License-Identifier: MIT
import os

import bench_busy
import pytest
from bench_busy import Told, beside, judged, table

from dnnsuite._runs.monitor import cpu_tree_s
from waiting import wait_for

TRUTH = {"1": {"hfta fp32 B=4": 2.0}, "2": {"hfta fp32 B=4": 2.8}}


def told(low, high, status="ok", threads=2, value=None):
    return Told(threads, "hfta fp32 B=4", value or (low * high) ** 0.5, low, high, status)


def test_an_interval_is_compared_with_the_quiet_speedup_of_as_many_threads():
    assert told(2.5, 3.0).holds(TRUTH) is True
    assert told(2.5, 3.0, threads=1).holds(TRUTH) is False
    assert told(2.5, 3.0, threads=8).holds(TRUTH) is None
    assert told(1.9, 2.1, threads=1).narrow
    assert not told(1.0, 3.0).narrow


def test_only_what_was_told_with_ok_can_be_wrong():
    unknown = Told(2, "hfta fp32 B=4", None, None, None, "inconclusive: the machine was busy")
    rough = told(9.0, 10.0, "rough: its interval is wide")
    beside_one = told(1.9, 2.1, "ok, on 1 of 2 cores, others used 1.0", threads=1)
    runs = [[told(2.6, 3.0)], [told(45.0, 50.0)], [unknown], [rough], [beside_one]]
    found = judged("one hog", runs, TRUTH)
    assert (found["speedups"], found["told with ok"], found["held"], found["excluded"]) == (5, 3, 2, 1)
    assert found["runs without an excluded one"] == 4
    assert found["runs conclusive within 15 %"] == 4
    assert "| one hog | 5 |" in table([found])


@pytest.mark.parametrize("kind", ["one hog", "memory"])
def test_neighbours_are_at_work_until_they_are_not_needed(kind):
    with beside(kind):
        before_s = cpu_tree_s(os.getpid())
        wait_for(lambda: cpu_tree_s(os.getpid()) >= before_s + 0.1)
    assert set(bench_busy.NEIGHBOURS) == {"none", "one hog", "two hogs", "bursts", "memory"}
