# SPDX-License-Identifier: MIT
"""Means of rates with 95 % intervals over runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

FEWEST_RUNS = 6  # below which two modes look like one too often: `timing.batch_means` says "too short"
_MOST_EXPONENT = 300.0  # of a factor that a float holds


class Interval(NamedTuple):
    """A mean and the 95 % interval about it; NaN where nothing is known."""

    mean: float
    low: float
    high: float


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean; NaN of nothing."""
    kept = list(values)
    return math.fsum(kept) / len(kept) if kept else math.nan


def weighted_mean(values: Iterable[float], weights: Iterable[float]) -> float:
    """Return the arithmetic mean by these weights; NaN of nothing."""
    kept = list(zip(values, weights, strict=True))
    total = math.fsum(weight for _, weight in kept)
    return math.fsum(value * weight for value, weight in kept) / total if kept else math.nan


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean of independent values, by Student's t; NaN for fewer than two."""
    from ..timing import batch_means

    if len(values) < 2:
        return math.nan
    return batch_means(list(values), batches=len(values), independent=True, may_be_negative=True).half_width


def of_rates(values: Sequence[float]) -> Interval:
    """Return the mean of rates and its interval on a logarithmic scale: it holds the mean, and no end is negative."""
    centre = mean(values)
    if len(values) < 2 or min(values) <= 0:
        return Interval(centre, math.nan, math.nan)
    factor = math.exp(min(half_width(values) / centre, _MOST_EXPONENT))  # delta method: sd of log(mean) ≈ sd / mean
    return Interval(centre, centre / factor, centre * factor)
