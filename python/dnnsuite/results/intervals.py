# SPDX-License-Identifier: MIT
"""Means of rates with 95 % intervals over runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .._lazy import pandas as pd

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


AFTER = "one side was measured after the other: a drift of the machine cannot be distinguished from a difference"
HIDDEN = "the machine changed its speed by as much as the sides differ: take more runs, in the order A B B A"
_OF_ACCOUNT, _TOLD = 2.0, 3.0  # standard errors from which on a drift is taken out, and is told


@dataclass(frozen=True)
class Drift:
    """Part of the drift in the difference of each pair, on logarithms, and a sentence where it is told."""

    steps: list[float]
    told: tuple[str, ...] = ()


def one_after_the_other(baseline: pd.DataFrame, candidate: pd.DataFrame) -> bool:
    """True if all runs of one side, on the machine of both, began before the first of the other."""
    starts = [sorted(side["started"]) for side in (baseline, candidate)]
    if not starts[0][0] or not starts[1][0] or len({*baseline["hostname"], *candidate["hostname"]}) > 1:
        return False
    return bool(starts[0][-1] < starts[1][0] or starts[1][-1] < starts[0][0])


def drift_of(good: Sequence[pd.DataFrame], seconds: Sequence[Sequence[float]]) -> Drift:
    """Find how much the machine drifts from one run to the next: a line through all runs, of one slope for both sides.

    In a pair the second run is later by one. Where each side is the second as often (A B B A) that drops out; where
    one always is (A B A B), a step of the drift is in every difference, and is to be taken out.

    Args:
        good: runs of the baseline and of the candidate, in turns.
        seconds: their times.
    """
    pairs = list(zip(good[0]["started"], good[1]["started"], strict=True))
    later = [(second > first) - (second < first) for first, second in pairs]
    order = sorted((start, side, i) for side in (0, 1) for i, start in enumerate(good[side]["started"]))
    at = {(side, i): float(place) for place, (_, side, i) in enumerate(order)}
    places: list[float] = []
    logs: list[float] = []
    for side in (0, 1):
        places += _centred([at[side, i] for i in range(len(pairs))])
        logs += _centred([math.log(value) for value in seconds[side]])
    width = math.fsum(place**2 for place in places)
    step = math.fsum(place * log for place, log in zip(places, logs, strict=True)) / width
    rest = math.fsum((log - step * place) ** 2 for place, log in zip(places, logs, strict=True))
    error = math.sqrt(rest / max(1, len(places) - 3) / width)
    if abs(step) <= _OF_ACCOUNT * error or not any(later):
        return Drift([0.0] * len(pairs))
    told = f"the machine drifted: each run took {100 * math.expm1(step):+.1f} % of the time of the one before"
    return Drift([step * each for each in later], (told,) if abs(step) > _TOLD * error else ())


def _centred(values: Sequence[float]) -> list[float]:
    middle = mean(values)
    return [value - middle for value in values]
