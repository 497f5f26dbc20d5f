# SPDX-License-Identifier: MIT
import math

import numpy as np
import pytest
from scipy import stats

from dnnsuite.results.intervals import half_width, mean, of_rates


def test_the_interval_is_students_on_logarithms() -> None:
    rates = [98.0, 101.0, 103.0, 100.0, 99.0]
    logs = np.log(rates)
    half = stats.t.ppf(0.975, 4) * logs.std(ddof=1) / math.sqrt(5)
    found = of_rates(rates)
    assert found.mean == pytest.approx(100.2)
    assert (found.low, found.high) == pytest.approx((math.exp(logs.mean() - half), math.exp(logs.mean() + half)))


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
