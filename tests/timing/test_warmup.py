# SPDX-License-Identifier: MIT
"""MSER-5 on series whose warm-up is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import timing


def warming(generator, length):
    """Step times around 1: the first 3 s late, a decay over 20 steps, 2 % of spikes."""
    times = generator.normal(1, 0.02, length) + 0.5 * np.exp(-np.arange(length) / 20)
    times[generator.random(length) < 0.02] += 0.3
    times[0] += 3
    return times


@pytest.mark.parametrize(("length", "bias"), [(100, 0.02), (300, 0.01)])
def test_truncation_removes_the_bias_of_warm_up(length, bias):
    generator = np.random.default_rng(0)
    kept = []
    for _ in range(200):
        times = warming(generator, length)
        kept.append(times[timing.mser5(times).truncated :].mean())
    assert np.mean(kept) == pytest.approx(1 + 0.02 * 0.3, rel=bias)  # the spikes are part of the steady state


def test_a_steady_series_is_found_steady():
    generator = np.random.default_rng(1)
    found = [timing.mser5(generator.normal(1, 0.05, 300)) for _ in range(300)]
    assert np.mean([one.steady for one in found]) > 0.95
    assert np.mean([one.truncated for one in found]) < 60


@given(st.floats(0.001, 1000), st.integers(20, 300))
def test_a_constant_series_needs_no_truncation(value, length):
    found = timing.mser5(np.full(length, value))
    assert (found.steady, found.truncated) == (True, 0)
    assert found.drift_per_100 == pytest.approx(0, abs=1e-9)


@given(st.integers(1, 8), st.floats(0.5, 10))
def test_a_step_is_cut_where_it_is(blocks, height):
    times = np.ones(100)
    times[: 5 * blocks] += height
    assert timing.mser5(times).truncated == 5 * blocks


@given(st.floats(1e-4, 0.1) | st.floats(-2e-3, -1e-4))
def test_a_linear_drift_has_no_steady_state(slope):
    found = timing.mser5(1 + slope * np.arange(300))
    assert not found.steady
    assert found.reason.startswith("no steady state")
    assert math.copysign(1, found.drift_per_100) == math.copysign(1, slope)


def test_a_late_step_has_no_steady_state():
    times = np.ones(200)
    times[140:] = 1.1
    assert not timing.mser5(times).steady


def test_spikes_alone_are_steady():
    times = np.random.default_rng(2).normal(1, 0.01, 400)
    times[37::50] += 0.2
    assert timing.mser5(times).steady


@given(st.lists(st.floats(0.5, 2), min_size=20, max_size=200), st.floats(0.001, 1000))
def test_the_unit_does_not_matter(times, factor):
    one, other = timing.mser5(times), timing.mser5(np.ldexp(times, round(math.log2(factor))))
    assert (one.truncated, one.steady) == (other.truncated, other.steady)


@given(st.lists(st.floats(-1e6, 1e6), max_size=100))
def test_at_most_half_is_cut_and_nothing_throws(values):
    found = timing.mser5(values)
    assert 0 <= found.truncated <= len(values) / 2
    assert found.reason


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([], "too short: 0 values, 20 are needed"),
        ([1.0] * 19, "too short: 19 values, 20 are needed"),
        ([1.0] * 30 + [math.nan], "a value is not finite"),
    ],
)
def test_what_cannot_be_judged_gives_a_status(values, reason):
    found = timing.mser5(values)
    assert (found.steady, found.truncated, found.reason) == (False, 0, reason)


def test_drift_is_relative_and_per_100_values():
    found = timing.mser5(4 + 4e-6 * np.arange(100))
    assert found.drift_per_100 == pytest.approx(1e-4, rel=1e-3)
