# SPDX-License-Identifier: MIT
"""Loops that measure: what they call, in which order, and when they end."""

import pytest

from dnnsuite import timing
from dnnsuite.errors import Error, InvalidArgument


def test_a_rule_ends_the_loop():
    calls = []
    rule = timing.measure(
        lambda: calls.append("step"), timing.Fixed(3), synchronize=lambda: calls.append("sync"), number=2
    )
    assert calls == ["sync", *["step", "step", "sync"] * 3]
    assert (len(rule.seconds), rule.status) == (3, "noisy")
    with pytest.raises(Error, match="has ended"):
        timing.measure(lambda: None, rule)


def test_the_budget_is_for_the_time_since_the_start():
    rule = timing.measure(lambda: None, timing.Precision(budget_s=1e-9))
    assert (rule.status, len(rule.seconds)) == ("timeout", 1)


def test_what_a_step_raises_ends_it_and_keeps_the_samples():
    rule, steps = timing.Fixed(5), iter([None, None])
    with pytest.raises(StopIteration):
        timing.measure(lambda: next(steps), rule)
    assert (len(rule.seconds), rule.status) == (2, "running")
    with pytest.raises(InvalidArgument, match="number=0"):
        timing.measure(lambda: None, rule, number=0)


def test_turns_favour_nobody():
    order = timing.abba(6)
    assert order == [0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0]
    positions = [[i for i, which in enumerate(order) if which == one] for one in (0, 1)]
    assert sum(positions[0]) == sum(positions[1])  # a linear drift cancels
    assert timing.abba(0) == []
    with pytest.raises(InvalidArgument, match="pairs=-1"):
        timing.abba(-1)


def test_pairs_are_run_in_turns():
    calls = []
    first, second = timing.measure_pairs(
        lambda: calls.append("a"), lambda: calls.append("b"), 4, synchronize=lambda: calls.append("-")
    )
    assert "".join(calls).replace("-", "") == "abbaabba"
    assert "".join(calls) == "-a--b--b--a--a--b--b--a-"
    assert len(first) == len(second) == 4
    assert min(first + second) > 0
