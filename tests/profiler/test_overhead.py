# SPDX-License-Identifier: MIT
"""The cost of instruments from steps with and without them, against arithmetic done by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.profiler._windows import LoopStep, overhead


def steps(*blocks):
    """Steps from (phase, length in ns, how many)."""
    made, at, window = [], 0, -1
    for phase, length, count in blocks:
        window += phase == "active"
        for _ in range(count):
            made.append(LoopStep(len(made), phase, window if phase != "off" else -1, at, at + length, 0, 0, 0))
            at += length
    return made


def test_a_step_that_takes_a_tenth_longer():
    found = overhead(steps(("off", 1000, 5), ("active", 1100, 3), ("off", 1000, 5), ("active", 1100, 3)))
    assert found.pct == pytest.approx(10)
    assert (found.low_pct, found.high_pct) == pytest.approx((10, 10))
    assert (found.windows, found.steps_on, found.steps_off) == (2, 6, 10)


@given(rate=st.floats(0.8, 1.25), cost=st.floats(0.0, 1.0))
def test_a_machine_that_drifts_cancels(rate, cost):
    lengths = [10**9 * rate**i for i in range(5)]
    phases = ["off", "active", "off", "active", "off"]
    made = steps(*((p, round(n * (1 + cost * (p == "active"))), 4) for p, n in zip(phases, lengths, strict=True)))
    assert overhead(made).pct == pytest.approx(100 * cost, abs=1e-4)


def test_warmup_and_the_loops_own_first_steps_are_left_out():
    blocks = (("off", 9000, 2), ("off", 1000, 4), ("warmup", 50_000, 2), ("active", 1500, 2), ("off", 1000, 1))
    assert overhead(steps(*blocks), skip=2).pct == pytest.approx(50)
    assert overhead(steps(*blocks)).pct < 50


def test_the_interval_of_one_window_is_welchs():
    made = steps(("off", 1000, 1), ("off", 1200, 1), ("active", 1300, 1), ("active", 1500, 1))
    logs = [[math.log(v) for v in side] for side in ((1300, 1500), (1000, 1200))]
    centre = math.log(1400 / 1100)
    squares = [(side[0] - side[1]) ** 2 / 2 / 2 for side in logs]
    from scipy import stats

    freedom = sum(squares) ** 2 / sum(s * s for s in squares)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(sum(squares))
    found = overhead(made)
    assert found.low_pct == pytest.approx(100 * math.expm1(centre - half), rel=1e-6)
    assert found.high_pct == pytest.approx(100 * math.expm1(centre + half), rel=1e-6)


def test_nothing_to_compare_with_is_no_number():
    assert overhead(steps(("active", 1000, 5))) is None
    assert overhead(steps(("off", 1000, 5))) is None
    lone = overhead(steps(("off", 1000, 1), ("active", 1100, 1)))
    assert lone.pct == pytest.approx(10)
    assert math.isnan(lone.low_pct)
    assert "[" not in str(lone)


def test_steps_that_return_early_are_paid_for_by_the_last_of_their_block():
    off = [("off", 10, 3), ("off", 3970, 1)]  # 1000 each
    on = [("active", 10, 3), ("active", 4770, 1)]  # 1200 each
    assert overhead(steps(*off, *on, *off)).pct == pytest.approx(20)
