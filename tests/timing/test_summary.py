# SPDX-License-Identifier: MIT
"""Quantiles, spread, outliers and trend, against numpy, scipy and the published quantile of a suite's report."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import timing
from dnnsuite.errors import InvalidArgument

values_of = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=60)


@given(values_of, st.floats(0, 1))
def test_quantiles_are_numpys(values, q):
    assert timing.quantile(values, q) == pytest.approx(np.quantile(values, q), rel=1e-9, abs=1e-6)


def test_the_deviation_quantile_of_the_published_report():
    """The 19 rows of mila's own report, which prints "Deviation Quantile (80%) : +1.1458 %" below them."""
    result = [
        *[7.424253, 2195.248475, 175.973774, 756.841070, 785.470579, 329.347550, 274.608760],
        *[147.794385, 146.285007, 1188.224303, 20802.705368, 178.694817, 49.263719, 1.254635],
        *[215482.487073, 212.040509, 5931.232565, 1365.497700, 4649.460342],
    ]
    sd = [
        *[0.055735, 6.457116, 0.191682, 60.333975, 43.330802, 0.770485, 1.361280],
        *[0.632454, 0.218744, 62.070805, 103.476919, 0.920870, 0.203476, 0.007228],
        *[3745.776792, 0.443492, 26.450238, 2.910483, 18.698980],
    ]
    quantile = timing.quantile(np.divide(sd, result), 0.8)
    assert f"{100 * quantile:+.4f} %" == "+1.1458 %"


@given(values_of)
def test_a_summary_is_what_numpy_and_scipy_say(values):
    found = timing.summarise(values)
    close = {"rel": 1e-7, "abs": 1e-4}
    assert found.count == len(values)
    assert found.mean == pytest.approx(np.mean(values), **close)
    assert found.median == pytest.approx(np.median(values), **close)
    assert found.mad == pytest.approx(scipy.stats.median_abs_deviation(values), **close)
    assert (found.q1, found.q3) == pytest.approx(tuple(np.quantile(values, (0.25, 0.75))), **close)
    assert (found.p5, found.p95) == pytest.approx(tuple(np.quantile(values, (0.05, 0.95))), **close)
    assert math.isnan(found.sd) == (len(values) < 2)
    assert 0 <= found.mild + found.severe <= len(values)


def test_outliers_are_counted_by_their_fence():
    values = [*range(1, 12), 25.0, -12.0, 90.0, -90.0]  # box of [2.5, 9.5] at most: fences at 1.5 and 3 widths
    found = timing.summarise(values)
    width = found.q3 - found.q1
    outside = [max(found.q1 - value, value - found.q3) / width for value in values]
    assert found.severe == sum(distance > 3 for distance in outside) == 2
    assert found.mild == sum(1.5 < distance <= 3 for distance in outside) == 2


def test_nothing_has_no_summary():
    found = timing.summarise([])
    assert found.count == 0
    assert all(math.isnan(value) for value in (found.mean, found.median, found.mad, found.p95, found.sd))
    assert math.isnan(timing.quantile([], 0.5))
    with pytest.raises(InvalidArgument, match=r"1\.5"):
        timing.quantile([1.0], 1.5)


@given(st.lists(st.sampled_from([1.0, 1.1, 1.2, 1.3]), min_size=8, max_size=40))
def test_the_trend_is_mann_kendalls_with_ties(values):
    """The oracle is S and its variance written out; the slope is scipy's."""
    found, n = timing.trend(values), len(values)
    s = sum(np.sign(b - a) for i, a in enumerate(values) for b in values[i + 1 :])
    _, ties = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    z = (abs(s) - 1) / math.sqrt(variance) if s else 0
    assert found.p == pytest.approx(2 * scipy.stats.norm.sf(z))
    slope = scipy.stats.theilslopes(values).slope
    assert found.slope_per_100 == pytest.approx(100 * slope / np.median(values), abs=1e-12)


@pytest.mark.parametrize("slope", [1e-4, -1e-4])
def test_a_drift_is_seen_through_noise(slope):
    values = 1 + slope * np.arange(400) + np.random.default_rng(0).normal(0, 0.01, 400)
    found = timing.trend(values)
    assert found.drifting
    assert found.slope_per_100 == pytest.approx(100 * slope, rel=0.25)


def test_noise_and_short_series_do_not_drift():
    generator = np.random.default_rng(1)
    found = [timing.trend(generator.normal(1, 0.05, 300)).drifting for _ in range(300)]
    assert np.mean(found) < 0.03
    assert not timing.trend([1.0, 2.0, 3.0]).drifting
    assert math.isnan(timing.trend([1.0, 2.0, 3.0]).p)
    assert not timing.trend(1 + 1e-7 * np.arange(100)).drifting  # sure, and of no consequence
