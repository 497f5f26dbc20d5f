# SPDX-License-Identifier: MIT
"""Running statistics, Student's t, batch means and rates against known answers, scipy and their own laws."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import timing
from dnnsuite.errors import InvalidArgument

finite = st.floats(-1e6, 1e6, allow_subnormal=False)
series = st.lists(finite, min_size=2, max_size=60)


def running(values):
    statistics = timing.RunningStatistics()
    for value in values:
        statistics.add(value)
    return statistics


@given(series)
def test_running_statistics_agree_with_numpy(values):
    statistics = running(values)
    assert statistics.count == len(values)
    assert statistics.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
    assert statistics.variance == pytest.approx(np.var(values, ddof=1), rel=1e-9, abs=1e-3)
    assert (statistics.min, statistics.max) == (min(values), max(values))


@given(series, series)
def test_merging_is_adding(first, second):
    merged, both = running(first), running(first + second)
    merged.merge(running(second))
    assert merged.count == both.count
    assert merged.mean == pytest.approx(both.mean, rel=1e-9, abs=1e-6)
    assert merged.variance == pytest.approx(both.variance, rel=1e-9, abs=1e-3)
    assert (merged.min, merged.max) == (both.min, both.max)


@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.8, 0.9, 0.95, 0.99, 0.9999])
@pytest.mark.parametrize("degrees", [0.5, 1, 2, 3, 4, 9, 19, 29, 99, 1000, 1e6])
def test_student_t_agrees_with_scipy(confidence, degrees):
    expected = scipy.stats.t.ppf((1 + confidence) / 2, degrees)
    assert timing.student_t(confidence, degrees) == pytest.approx(expected, rel=1e-8)


@given(st.floats(0.001, 0.999), st.floats(1, 1e4))
def test_student_t_inverts_the_distribution(confidence, degrees):
    t = timing.student_t(confidence, degrees)
    assert scipy.stats.t.cdf(t, degrees) - scipy.stats.t.cdf(-t, degrees) == pytest.approx(confidence, rel=1e-9)


def test_batch_means_is_the_t_interval_when_every_value_is_a_batch():
    values = np.random.default_rng(0).normal(5, 1, 10)
    interval = timing.batch_means(values, batches=10, confidence=0.9)
    low, high = scipy.stats.t.interval(0.9, 9, values.mean(), scipy.stats.sem(values))
    assert (interval.mean, interval.low, interval.high) == pytest.approx((values.mean(), low, high))
    centred = values - values.mean()
    assert interval.lag1 == pytest.approx((centred[1:] * centred[:-1]).sum() / (centred**2).sum())


@given(st.lists(finite, min_size=1, max_size=80), st.integers(2, 20))
def test_batch_means_is_centred_on_the_mean_of_all_values(values, batches):
    interval = timing.batch_means(values, batches)
    assert interval.batches == min(batches, len(values))
    assert interval.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
    if len(values) > 1:
        assert interval.low <= interval.mean <= interval.high
        assert interval.half_width == pytest.approx((interval.high - interval.low) / 2, rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(0.1, 10), min_size=12, max_size=60), st.floats(0.01, 100))
def test_an_interval_scales_with_its_unit(values, factor):
    one, other = timing.batch_means(values), timing.batch_means(np.array(values) * factor)
    assert other.mean == pytest.approx(one.mean * factor)
    assert other.half_width == pytest.approx(one.half_width * factor, rel=1e-6, abs=1e-9 * factor)


def ar1(generator, phi, runs, length):
    """`runs` stationary AR(1) series of unit variance and mean 0 [runs, length]."""
    noise = generator.normal(size=(runs, length)) * math.sqrt(1 - phi**2)
    noise[:, 0] /= math.sqrt(1 - phi**2)
    for i in range(1, length):
        noise[:, i] += phi * noise[:, i - 1]
    return noise


def test_intervals_cover_correlated_series():
    """Nominally 95 %; an interval that takes the values for independent covers 75 % of these."""
    all_series = ar1(np.random.default_rng(1), phi=0.5, runs=1000, length=200)
    intervals = [timing.batch_means(values) for values in all_series]
    assert np.mean([interval.low <= 0 <= interval.high for interval in intervals]) >= 0.92
    naive = 1.96 * all_series.std(axis=1, ddof=1) / math.sqrt(200)
    assert np.mean(np.abs(all_series.mean(axis=1)) <= naive) < 0.8


def test_lag1_shows_a_series_that_is_too_short():
    generator = np.random.default_rng(2)
    short = [timing.batch_means(values).lag1 for values in ar1(generator, 0.98, 200, 60)]
    long = [timing.batch_means(values).lag1 for values in ar1(generator, 0.5, 200, 400)]
    assert np.median(short) > 0.2 > np.median(long)


def test_a_series_against_itself_covers_a_ratio_of_one():
    """A/A: two halves of the same process differ by nothing; the interval of the log ratio says so."""
    generator = np.random.default_rng(3)
    first, second = (1 + 0.02 * ar1(generator, 0.3, 600, 100) for _ in range(2))
    covered = [timing.batch_means(np.log(a / b)) for a, b in zip(first, second, strict=True)]
    assert np.mean([interval.low <= 0 <= interval.high for interval in covered]) >= 0.92


def test_a_rate_is_all_items_over_all_seconds():
    assert timing.rate([10, 10], [1, 10], batches=2).mean == pytest.approx(20 / 11)


def test_the_mean_of_rates_would_overstate():
    """Steps that jitter by 30 % (log-sd): the mean of per-step rates is 9.5 % above what was done."""
    seconds = np.exp(np.random.default_rng(4).normal(0, 0.3, 50_000))
    rate = timing.rate(np.ones_like(seconds), seconds).mean
    assert np.mean(1 / seconds) / rate == pytest.approx(math.exp(0.3**2), rel=0.01)


@given(st.lists(st.floats(0.01, 1), min_size=10, max_size=60))
def test_a_rate_is_the_inverse_of_the_time_per_item(seconds):
    rate = timing.rate(np.full(len(seconds), 1.0), seconds)
    assert rate.mean == pytest.approx(1 / np.mean(seconds))
    assert rate.low <= rate.mean * (1 + 1e-9)
    assert rate.mean <= rate.high * (1 + 1e-9)


def test_rate_weighs_steps_by_their_items():
    rate = timing.rate(np.arange(1, 31), np.arange(1, 31) / 4.0)
    assert (rate.mean, rate.low, rate.high) == pytest.approx((4, 4, 4))


def test_short_series_give_a_status():
    empty, one = timing.batch_means([]), timing.batch_means([2.5])
    assert (empty.batches, one.batches, one.mean) == (0, 1, 2.5)
    assert math.isnan(empty.mean)
    assert math.isnan(one.half_width)
    assert math.isnan(timing.rate([], []).mean)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: timing.batch_means([1.0, 2.0], batches=1), "at least 2 batches, not 1"),
        (lambda: timing.batch_means([1.0, 2.0], confidence=1.0), "between 0 and 1, not 1"),
        (lambda: timing.batch_means(np.ones((2, 2))), "one dimension, not 2"),
        (lambda: timing.rate([1.0], [1.0, 2.0]), "not 1 and 2"),
        (lambda: timing.student_t(0.95, -1), "positive, not -1"),
    ],
)
def test_refusals_name_the_value(call, message):
    with pytest.raises(InvalidArgument, match=message):
        call()


def test_reprs_say_what_is_inside():
    assert repr(timing.batch_means([1.0, 1.0])) == "Interval(mean=1, low=1, high=1, batches=2, lag1=nan)"


def test_an_interval_says_when_it_rests_on_too_little():
    generator = np.random.default_rng(5)
    assert timing.batch_means(generator.normal(size=200)).enough
    assert "12 values, and 50 show" in timing.batch_means(generator.normal(size=12)).why
    drifting = generator.normal(size=200) + np.linspace(0, 4, 200)
    assert "rise or fall all along" in timing.batch_means(drifting).why
    few = timing.batch_means([-0.1, 0.0, 0.1], batches=3, independent=True)
    assert "3 runs, and fewer than 6" in few.why
    assert (few.low, few.high) == pytest.approx(scipy.stats.t.interval(0.95, 2, 0, 0.1 / math.sqrt(3)))
    rising = timing.batch_means(np.arange(12.0), independent=True)
    assert "neighbouring runs correlate" in rising.why


@pytest.mark.parametrize("length", [50, 100, 300])
@pytest.mark.parametrize("phi", [-0.3, 0.0, 0.5, 0.7, 0.9])
def test_intervals_of_correlated_series_cover_what_they_claim(phi, length):
    found = [timing.batch_means(10 + values) for values in ar1(np.random.default_rng(6), phi, 800, length)]
    given = [interval for interval in found if interval.enough]
    assert len(given) > 750
    assert 0.915 < np.mean([interval.low <= 10 <= interval.high for interval in given]) < 0.985


@pytest.mark.parametrize("runs", [6, 10, 30])
@pytest.mark.parametrize("sigma", [0.05, 0.5, 1.0])
def test_intervals_of_skewed_times_cover_their_mean(sigma, runs):
    """Student's t over log-normal times of sigma 1 covers 82 to 88 %."""
    values = np.random.default_rng(8).lognormal(0, sigma, (1500, runs))
    found = [timing.batch_means(each, independent=True) for each in values]
    given = [interval for interval in found if interval.enough]
    assert 0.92 < np.mean([i.low <= math.exp(sigma**2 / 2) <= i.high for i in given]) < 0.975
    assert min(interval.low for interval in found) > 0


def test_values_that_may_be_negative_have_a_symmetric_interval():
    values = [0.1, 0.2, 0.4, 0.3, 0.1, 0.5]
    plain = timing.batch_means(values, independent=True, may_be_negative=True)
    expected = scipy.stats.t.interval(0.95, 5, np.mean(values), scipy.stats.sem(values))
    assert (plain.low, plain.high) == pytest.approx(expected)
    times = timing.batch_means(values, independent=True)
    assert times.high - times.mean > times.mean - times.low > 0


def test_what_misleads_of_series_that_are_too_short_is_rare():
    for length in (20, 50, 100):
        found = [timing.batch_means(values) for values in ar1(np.random.default_rng(7), 0.9, 400, length)]
        assert np.mean([each.enough and not each.low <= 0 <= each.high for each in found]) < 0.075
