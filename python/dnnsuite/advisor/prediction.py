# SPDX-License-Identifier: MIT
"""Prediction of the time of a step over the number of models, from a few small numbers. Pure.

The threads of a CPU take whole models, so the time of a step grows with the models that the busiest thread has:
`t(B) = a + b * ceil(B / lanes)`. On a GPU, and on a CPU where a small array is spread over all threads, `lanes` is 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

# Error of a prediction beyond the largest B measured, by the square of its doublings: caches that overflow, memory that
# is shared, an array that finds it faster to run in other shards than a smaller one.
_PER_DOUBLING = 0.06
_LEAST_ERROR = 0.03
_95_PERCENT = 2.0


@dataclass(frozen=True)
class Measured:
    """Seconds of a step, and the interval in which they were seen."""

    seconds: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Relative half width of the interval."""
        return (self.high - self.low) / (2 * self.seconds)


@dataclass(frozen=True)
class Limits:
    """Bounds that no array passes.

    Attributes:
        flop: floating-point operations of one model's step.
        peak: the most of them that the device does in a second; 0 is unknown.
        model_bytes: memory that one more model takes.
        free_bytes: memory that is there.
    """

    flop: float = 0.0
    peak: float = 0.0
    model_bytes: int = 0
    free_bytes: int = 0

    def floor_s(self, B: int) -> float:
        """Seconds that the arithmetic of B models takes at least."""
        return B * self.flop / self.peak if self.peak > 0 else 0.0

    def most(self) -> int | None:
        """Return the most models that fit; None if that is unknown."""
        if self.model_bytes <= 0 or self.free_bytes <= 0:
            return None
        return max(1, self.free_bytes // self.model_bytes)


@dataclass(frozen=True)
class StepTime:
    """Fitted time of a step: `fixed_s + model_s * ceil(B / lanes)`, and how well it fits.

    Attributes:
        error: relative, of the measured points about the line and in themselves.
        centre, spread: mean and spread of the points along the line; how well the slope is known follows from them.
        largest: B that was measured.
        slowest_s: most seconds per model of the measured arrays: B models as several such arrays are no slower.
    """

    fixed_s: float
    model_s: float
    lanes: int
    error: float
    centre: float
    spread: float
    largest: int
    slowest_s: float

    def seconds(self, B: int) -> float:
        """Predicted seconds of a step of B models."""
        return self.fixed_s + self.model_s * math.ceil(B / self.lanes)

    def interval(self, B: int, limits: Limits) -> Measured:
        """Return the prediction with its 95 % interval, not below what the arithmetic takes."""
        error = max(self.error, _LEAST_ERROR)
        further = max(0.0, math.log2(max(B, 1) / self.largest))
        floor = limits.floor_s(B)
        seconds = max(self.seconds(B), floor)
        # The slope is known as well as the points allow; the further away from them, the more that counts.
        away = (math.ceil(B / self.lanes) - self.centre) / math.sqrt(self.spread) if self.spread > 0 else 0.0
        factor = math.exp(_95_PERCENT * math.hypot(error, _PER_DOUBLING * further**2, error * away / seconds))
        high = max(seconds, min(seconds * factor, B * self.slowest_s))
        return Measured(seconds, max(seconds / factor, floor), high)


def fitted(points: Mapping[int, Measured], threads: int) -> StepTime:
    """Fit the line through the measured points, in relative error; the number of lanes is the one that fits better.

    Args:
        points: B → seconds, of two Bs or more.
        threads: threads that may take models.
    """
    found = [_line(points, lanes) for lanes in sorted({1, threads})]
    return min(found, key=lambda line: line.error)


def _line(points: Mapping[int, Measured], lanes: int) -> StepTime:
    """Weighted least squares with weights `1 / t²`; neither coefficient is negative."""
    xs = [math.ceil(B / lanes) for B in points]
    ts = [point.seconds for point in points.values()]
    weights = [1 / t**2 for t in ts]
    total = sum(weights)
    x0 = sum(w * x for w, x in zip(weights, xs, strict=True)) / total
    t0 = sum(w * t for w, t in zip(weights, ts, strict=True)) / total
    spread = sum(w * (x - x0) ** 2 for w, x in zip(weights, xs, strict=True))
    both = sum(w * (x - x0) * (t - t0) for w, x, t in zip(weights, xs, ts, strict=True))
    slope = max(0.0, both / spread) if spread > 0 else 0.0
    fixed = t0 - slope * x0
    if fixed < 0:
        fixed = 0.0
        slope = sum(w * x * t for w, x, t in zip(weights, xs, ts, strict=True)) / sum(
            w * x * x for w, x in zip(weights, xs, strict=True)
        )
    residual = [(fixed + slope * x) / t - 1 for x, t in zip(xs, ts, strict=True)]
    freedom = max(1, len(xs) - 2)
    scatter = math.sqrt(sum(r * r for r in residual) / freedom)
    noise = sum(point.error for point in points.values()) / len(points) / _95_PERCENT
    return StepTime(
        fixed,
        slope,
        lanes,
        math.hypot(scatter, noise),
        x0,
        spread,
        max(points),
        max(point.high / B for B, point in points.items()),
    )
