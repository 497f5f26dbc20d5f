# SPDX-License-Identifier: MIT
"""Shares of a step: known timelines worked out by hand, and laws that hold for any."""

import itertools

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite.profiler._breakdown import DEFINITIONS, Segment, breakdown, op_segments
from dnnsuite.profiler._windows import LoopStep


def step(t0, t1, cpu=None, number=0):
    return LoopStep(number, "active", 0, t0, t1, t1 - t0 if cpu is None else cpu, 0, 0)


def phases(*rows):
    return pd.DataFrame(rows, columns=["phase", "t0_ns", "t1_ns", "cpu_ns"]).assign(thread=1)


def ops(*rows, thread=1):
    return pd.DataFrame(rows, columns=["class", "t0_ns", "t1_ns"]).assign(thread=thread)


def shares(*arguments):
    table = breakdown(*arguments)
    return dict(zip(table["class"], table["share_pct"], strict=True))


def test_a_step_by_hand():
    """0-100 data, 100-400 forward with 200 of products, 400-900 backward asleep for 100, 900-1000 outside."""
    loop = phases(("data", 0, 100, 10), ("forward", 100, 400, 300), ("backward", 400, 900, 400))
    work = [Segment(150, 350, "gemm"), Segment(450, 800, "norm")]
    assert shares([step(0, 1000, cpu=10 + 300 + 400 + 60)], loop, work, work) == pytest.approx(
        {"norm": 35, "gemm": 20, "data wait": 10, "idle": 10 + 4, "host": 10 + 5 + 6}
    )


def test_work_in_the_loader_is_a_wait_unless_others_compute():
    loop = phases(("data", 0, 100, 100))
    own = [Segment(20, 60, "copy")]
    assert shares([step(0, 100)], loop, own, own) == pytest.approx({"data wait": 100})
    other = [Segment(50, 100, "gemm")]
    assert shares([step(0, 100)], loop, [*own, *other], own) == pytest.approx({"data wait": 50, "gemm": 45, "copy": 5})


def test_threads_that_work_at_once_share_the_instant():
    work = [Segment(0, 100, "gemm"), Segment(0, 100, "gemm"), Segment(50, 100, "norm")]
    assert shares([step(0, 100)], None, work) == pytest.approx({"gemm": 75, "norm": 25})


def test_only_exposed_communication_counts():
    work = [Segment(0, 60, "gemm"), Segment(40, 100, "communication")]
    assert shares([step(0, 100)], None, work) == pytest.approx({"gemm": 60, "communication": 40})


def test_time_between_steps_counts_nowhere():
    work = [Segment(0, 1000, "gemm")]
    table = breakdown([step(0, 100), step(900, 1000)], None, work)
    assert list(table["class"]) == ["gemm"]
    assert table["ms_per_step"].iloc[0] == pytest.approx(100 / 1e6)
    assert table["definition"].iloc[0] == DEFINITIONS["gemm"]


def test_the_innermost_class_counts_and_wrappers_are_transparent():
    nested = ops(
        ("gemm", 0, 100),
        ("gemm", 10, 90),
        ("copy", 20, 30),
        ("view", 40, 50),
        ("view", 110, 120),
        ("frame", 130, 170),
        ("reduction", 140, 150),
        ("custom", 200, 300),
        ("view", 210, 220),
        ("other", 230, 240),
    )
    assert op_segments(nested) == [
        Segment(0, 10, "gemm"),
        Segment(10, 20, "gemm"),
        Segment(20, 30, "copy"),
        Segment(30, 40, "gemm"),
        Segment(40, 50, "gemm"),
        Segment(50, 90, "gemm"),
        Segment(90, 100, "gemm"),
        Segment(110, 120, "views"),
        Segment(140, 150, "reduction"),
        Segment(200, 210, "custom"),
        Segment(210, 220, "custom"),
        Segment(220, 230, "custom"),
        Segment(230, 240, "other"),
        Segment(240, 300, "custom"),
    ]


def test_a_collective_goes_on_after_the_call_that_began_it():
    nested = ops(("communication", 0, 10), ("communication", 5, 90), ("gemm", 20, 30))
    found = op_segments(nested)
    assert Segment(5, 90, "communication") in found
    loop = phases(("backward", 0, 100, 30))
    local = [segment for segment in found if segment.kind == "gemm"]
    # 100 ns, of which 10 are products, 80 communication alone; asleep for 70 of these, on the CPU for the rest
    assert shares([step(0, 100, cpu=30)], loop, found, local) == pytest.approx(
        {"communication": 80, "gemm": 10, "host": 10}
    )


def test_a_thread_that_others_keep_from_the_cpu_is_not_idle_for_all_of_it():
    """Half of 1000 ns is products. The thread waited for a CPU for 400, as long in products as out of them."""
    waited = LoopStep(0, "active", 0, 0, 1000, 600, 0, 400)
    work = [Segment(0, 500, "gemm")]
    assert shares([waited], None, work, work) == pytest.approx({"gemm": 50, "host": 30, "idle": 20})


def test_what_the_optimizer_runs_is_the_optimizers():
    table = ops(("elementwise", 0, 10), ("elementwise", 20, 30), ("elementwise", 40, 50))
    found = op_segments(table, [(15, 35)])
    assert [segment.kind for segment in found] == ["elementwise", "optimizer", "elementwise"]
    recorded = ops(("optimizer", 0, 100), ("elementwise", 10, 20))
    assert {segment.kind for segment in op_segments(recorded)} == {"optimizer"}
    told = table.assign(phase=["forward", "optimizer", "backward"])
    assert [segment.kind for segment in op_segments(told)] == ["elementwise", "optimizer", "elementwise"]


times = st.integers(0, 1000)
intervals = st.tuples(times, times).map(sorted).filter(lambda pair: pair[0] < pair[1])
kinds = st.sampled_from(["gemm", "norm", "communication", "optimizer"])
segments = st.lists(st.builds(lambda pair, kind: Segment(*pair, kind), intervals, kinds), max_size=12)


@settings(max_examples=60)
@given(work=segments, edges=st.lists(times, min_size=2, max_size=6, unique=True), cpu=st.integers(0, 1000))
def test_shares_are_a_partition(work, edges, cpu):
    edges = sorted(edges)
    loop = phases(
        *(("data" if i % 2 else "forward", a, b, min(cpu, b - a)) for i, (a, b) in enumerate(itertools.pairwise(edges)))
    )
    table = breakdown([step(0, 500, cpu // 2), step(500, 1000, cpu // 2, 1)], loop, work)
    assert table["share_pct"].sum() == pytest.approx(100)
    assert (table["share_pct"] > 0).all()
    assert set(table["class"]) <= set(DEFINITIONS)
