# SPDX-License-Identifier: MIT
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dnnsuite.results.intervals import half_width, mean, of_rates


def test_the_interval_is_students_of_the_mean_as_a_factor() -> None:
    rates = [98.0, 101.0, 103.0, 100.0, 99.0]
    factor = math.exp(stats.t.ppf(0.975, 4) * stats.sem(rates) / np.mean(rates))
    assert of_rates(rates) == pytest.approx((100.2, 100.2 / factor, 100.2 * factor))


def test_of_rates_that_are_far_apart_it_holds_the_mean_and_mostly_the_true_one() -> None:
    draws = np.exp(np.random.default_rng(0).normal(0, 1, (400, 50)))
    found = [of_rates(rates.tolist()) for rates in draws]
    assert all(low <= centre <= high for centre, low, high in found)
    assert np.mean([low <= math.exp(0.5) <= high for _, low, high in found]) > 0.85


@given(st.lists(st.floats(1e-9, 1e9), min_size=2, max_size=9))
def test_the_interval_holds_its_mean(rates: list[float]) -> None:
    found = of_rates(rates)
    assert 0 < found.low <= found.mean <= found.high


@pytest.mark.parametrize("rates", [[1.0, 100.0], [1e-9, 1e9, 1.0], [3.0, 3.0]])
def test_no_end_is_negative(rates: list[float]) -> None:
    found = of_rates(rates)
    assert 0 < found.low <= found.high


@pytest.mark.parametrize("rates", [[], [5.0], [0.0, 1.0]])
def test_too_little_has_no_interval(rates: list[float]) -> None:
    found = of_rates(rates)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert found.mean == pytest.approx(mean(rates), nan_ok=True)


def test_half_the_width_is_students() -> None:
    values = [1.0, 2.0, 4.0]
    assert half_width(values) == pytest.approx(stats.t.ppf(0.975, 2) * stats.sem(values))
