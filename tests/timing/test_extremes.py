# SPDX-License-Identifier: MIT
"""Values near the largest and the smallest that a double holds: an interval, NaN or a typed error, never a crash."""

import contextlib
import math

import numpy as np
import pytest

from dnnsuite import timing
from dnnsuite.errors import InvalidArgument

LARGEST = np.finfo(float).max


def series(kind, value, count):
    values = np.random.default_rng(count).random(count) + 0.5
    if kind == "one":
        values[0] = value
    elif kind == "every second":
        values[::2] *= value / 2
    else:
        values *= value / 2
    return values


@pytest.mark.parametrize("count", [1, 19, 60])
@pytest.mark.parametrize("value", [1e154, 1e160, 1e300, LARGEST, 5e-324, 1e-200, math.inf, math.nan])
@pytest.mark.parametrize("kind", ["one", "every second", "all"])
def test_every_estimate_of_such_a_series_is_one_or_none(kind, value, count):
    values, others = series(kind, value, count), series("all", 2.0, count)
    calls = [
        lambda: timing.batch_means(values),
        lambda: timing.batch_means(values, independent=True),
        lambda: timing.batch_means(-values, may_be_negative=True),
        lambda: timing.rate(others, values),
        lambda: timing.rate(values, others),
        lambda: timing.compare(values, others),
        lambda: timing.compare(others, values, paired=False),
        lambda: timing.compare(values, others, paired=False, independent=True),
        lambda: timing.mser5(values),
        lambda: timing.summarise(values),
        lambda: timing.trend(values),
        lambda: timing.quantile(values, 0.3),
        lambda: timing.bootstrap_mean([[each] for each in values[:25]], resamples=100),
        lambda: timing.bootstrap_ratio([[v] for v in values[:25]], [[v] for v in others[:25]], resamples=100),
    ]
    for call in calls:
        with contextlib.suppress(InvalidArgument):
            assert not repr(call()).startswith("<")


def test_a_value_whose_square_is_none_has_no_interval_and_says_why():
    found = timing.batch_means([1e160] + [1.0] * 59)
    assert found.mean == pytest.approx(1e160 / 60)
    assert not math.isfinite(found.half_width)
    assert "too large to be squared" in found.why


@pytest.mark.parametrize(
    ("count", "rarest"), [(1, "one in 1 "), (50, "one in 16 "), (299, "one in 99 "), (300, None), (5000, None)]
)
def test_few_values_say_which_rare_stalls_they_cannot_have_seen(count, rarest):
    """Of an event that happens once in n values, 3 n values see none in one case of twenty."""
    said = timing.batch_means([1.0] * count).unseen
    assert (rarest in said) if rarest else said == ""
    assert timing.rate([1.0] * count, [1.0] * count).unseen == said
    if rarest:
        n = max(1, count // 3)
        assert (1 - 1 / n) ** count < 0.06


@pytest.mark.parametrize(
    "made",
    [
        timing.compare([1.0, 2.0, 3.0], [1.0, 2.0, 3.5]), timing.bootstrap_mean([[1.0, 2.0]] * 3),
        timing.summarise([1.0, 2.0]), timing.trend([1.0] * 9), timing.Fixed(5), timing.StdRel(), timing.Entropy(),
        timing.Precision(), timing.RunningStatistics(), timing.StepTimer(4), timing.batch_means([1.0, 2.0]),
        timing.Spans(4), timing.RepeatNumber(12, 2),
    ],
    ids=lambda made: type(made).__name__,
)  # fmt: skip
def test_what_is_public_prints_what_it_holds(made):
    text = repr(made)
    assert text.startswith(f"{type(made).__name__}(")
    assert "=" in text
    assert "0x" not in text
