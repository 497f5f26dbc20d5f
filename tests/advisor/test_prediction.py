# SPDX-License-Identifier: MIT
"""Times of a step that follow a known law, predicted from three of them."""

import pytest

from dnnsuite.advisor.advice import Limits, Measured, fitted


def exactly(law, Bs=(1, 2, 4), error=0.0):
    return {B: Measured(law(B), law(B) * (1 - error), law(B) * (1 + error)) for B in Bs}


def test_a_line_is_found():
    fit = fitted(exactly(lambda B: 3.0 + 0.5 * B), threads=1)
    assert (fit.fixed_s, fit.model_s, fit.lanes) == (pytest.approx(3.0), pytest.approx(0.5), 1)
    assert fit.seconds(64) == pytest.approx(35.0)
    assert fit.largest == 4
    assert fit.slowest_s == 3.5


def test_threads_that_take_whole_models_are_found():
    fit = fitted(exactly(lambda B: 1.0 + 2.0 * -(-B // 2)), threads=2)
    assert fit.lanes == 2
    assert fit.seconds(7) == pytest.approx(9.0)
    assert fitted(exactly(lambda B: 1.0 + B), threads=2).lanes == 1


def test_no_coefficient_is_negative():
    fit = fitted(exactly(lambda B: B**1.5), threads=1)
    assert fit.fixed_s == 0.0
    falling = fitted(exactly(lambda B: 5.0 - B), threads=1)
    assert falling.model_s == 0.0
    assert fitted({2: Measured(1.0, 1.0, 1.0)}, threads=1).seconds(2) == pytest.approx(1.0)


def test_the_interval_widens_away_from_what_was_measured():
    fit = fitted(exactly(lambda B: 3.0 + 0.5 * B, error=0.05), threads=1)
    widths = []
    for B in (4, 8, 16, 64):
        between = fit.interval(B, Limits())
        assert between.low < between.seconds < between.high
        widths.append(between.error)
    assert widths == sorted(widths)
    assert widths[2] > 2 * widths[1]  # two doublings away are more than twice as uncertain
    assert fit.interval(64, Limits()).high <= 64 * fit.slowest_s


def test_arithmetic_and_memory_are_limits():
    limits = Limits(flop=1e9, peak=1e9, model_bytes=100, free_bytes=1050)
    assert limits.floor_s(8) == 8.0
    assert limits.most() == 10
    assert Limits().most() is None
    assert Limits(model_bytes=10, free_bytes=5).most() == 1
    fit = fitted(exactly(lambda B: 5.0 + 0.5 * B), threads=1)
    between = fit.interval(64, limits)
    assert between.seconds == between.low == 64.0
