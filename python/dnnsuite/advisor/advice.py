# SPDX-License-Identifier: MIT
"""Advice from measurements: curves of rate over B, the mode and B to use, the cost of a sweep. Pure."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .._lazy import numpy as np
from .._shown import duration, interval, number, percent, ratio

_BS = (1, 2, 4, 8, 16, 32, 64)
_MOST = 64  # where nobody knows the memory
_NEAR_BEST = 0.95  # a smaller B that reaches so much of the best is preferred
# Processes side by side: each has as much of the machine as if it were alone, at best; memory is shared.
_SHARING = (0.6, 0.85)


@dataclass(frozen=True)
class Point:
    """Rate of a mode with B models.

    Attributes:
        rate: steps of a model per second, with `low` and `high`, the ends of its 95 % interval.
        gain: the rate over that of one plain model at a time.
        measured: False for a prediction.
    """

    mode: str
    B: int
    rate: float
    low: float
    high: float
    gain: float
    measured: bool


@dataclass(frozen=True)
class Curve:
    """Rates of one mode over B.

    Attributes:
        points: one for each B, in increasing order.
        most: the most models that fit in memory; None if unknown.
    """

    mode: str
    points: tuple[Point, ...]
    most: int | None

    def at(self, B: int) -> Point:
        """Return the point of B models. Raises KeyError if B is not on the curve."""
        return {point.B: point for point in self.points}[B]


@dataclass(frozen=True)
class Advice:
    """Advice: the mode and B to use, the reason, and the cost of a sweep in each mode.

    Attributes:
        mode, B: the recommended mode and number of models; `serial` trains one plain model after the other.
        gain, low, high: speed relative to serial, with a 95 % interval.
        reason: one sentence.
        curves: predicted rates of each mode.
        sweep_s: seconds of a sweep by mode, at the mode's best B.
        trials, steps: size of that sweep.
        limits: bounds of an array: arithmetic and memory.
        fit: the fitted time of a step of the array; None where the steps are not known.
        cores: number of CPUs that it was measured on.
    """

    mode: str
    B: int
    gain: float
    low: float
    high: float
    reason: str
    curves: tuple[Curve, ...]
    sweep_s: Mapping[str, float]
    trials: int
    steps: int
    limits: Limits
    fit: StepTime | None
    measured_s: Mapping[str, float] = field(default_factory=dict)
    cores: str = ""

    @property
    def conclusive(self) -> bool:
        """False if the machine was too busy for advice; `mode` is then serial, for lack of anything better."""
        return self.fit is not None

    def curve(self, mode: str) -> Curve:
        """Return the curve of a mode."""
        return {each.mode: each for each in self.curves}[mode]

    def to_dict(self) -> dict[str, Any]:
        """Plain values; None for what is not known."""
        made = asdict(self)
        return made | {name: None for name in ("gain", "low", "high") if math.isnan(made[name])}

    def __str__(self) -> str:
        if not self.conclusive:
            return self.reason
        lines = [f"{'mode':<11} {'B':>3}  {'steps/s':>9}  times serial"]
        for curve in self.curves:
            for point in curve.points:
                gain = f"{ratio(point.gain)}{_between(point, point.gain / point.rate)}"
                noted = "" if point.measured else "  predicted"
                lines.append(f"{point.mode:<11} {point.B:>3}  {number(point.rate):>9}  {gain}{noted}")
        lines.append(self.reason)
        if "others" in self.cores:
            lines.append(f"Measured on {self.cores}.")
        costs = ", ".join(f"{mode} {duration(s)}" for mode, s in self.sweep_s.items())
        lines.append(f"A sweep of {self.trials} trials of {self.steps} steps: {costs}.")
        return "\n".join(lines)


def concluded(
    plain: Measured,
    arrays: Mapping[int, Measured],
    alone: Measured | None,
    threads: int,
    limits: Limits,
    trials: int,
    steps: int,
    cores: str = "",
    unknown: str = "",
) -> Advice:
    """Conclude from the measured steps.

    Args:
        plain: a step of one plain model with all threads.
        arrays: a step of an array, by its B.
        alone: a step of one plain model with one thread, which processes side by side have; None on a GPU.
        threads: CPU threads of a run; 1 on a GPU.
        trials, steps: size of the sweep whose cost is asked.
        cores: CPUs that they were measured on.
        unknown: reason that they are not known; empty where they are.
    """
    if unknown:
        reason = f"Inconclusive, {unknown}. Ask again when it is quieter."
        nothing = math.nan, math.nan, math.nan
        return Advice("serial", 1, *nothing, reason, (), {}, trials, steps, limits, None, {}, cores)
    fit = fitted(arrays, threads)
    most = limits.most()
    serial = Curve("serial", (_point("serial", 1, plain, plain, True),), most)
    largest = min(most or _MOST, _MOST)
    Bs = sorted({*arrays, *_BS[: bisect.bisect(_BS, largest)]})
    fused = Curve(
        "hfta", tuple(_point("hfta", B, arrays.get(B) or fit.interval(B, limits), plain, B in arrays) for B in Bs), most
    )
    curves = [serial, fused]
    if alone is not None and threads > 1:
        curves.append(_side_by_side(alone, plain, threads, most))
    # The smallest B that comes near the best of what is sure: the lower ends, which far predictions have low.
    sure = {curve.mode: _NEAR_BEST * max(point.low for point in curve.points) for curve in curves}
    best = {curve.mode: next(p for p in curve.points if p.low >= sure[curve.mode]) for curve in curves}
    winner = max(best.values(), key=lambda point: point.rate)
    costs = {curve.mode: _sweep_s(curve, best[curve.mode], trials, steps) for curve in curves}
    chosen = winner if winner.low > best["serial"].rate or winner.mode == "serial" else best["serial"]
    share = 1 / best["serial"].rate
    return Advice(
        chosen.mode, chosen.B, chosen.gain, chosen.low * share, chosen.high * share,
        _reason(chosen, winner, share, most, fit), tuple(curves), costs, trials, steps, limits, fit,
        {"plain": plain.seconds, **{f"B={B}": point.seconds for B, point in arrays.items()}}, cores,
    )  # fmt: skip


def _point(mode: str, B: int, step: Measured, plain: Measured, measured: bool) -> Point:
    return Point(mode, B, B / step.seconds, B / step.high, B / step.low, B * plain.seconds / step.seconds, measured)


def _side_by_side(alone: Measured, plain: Measured, threads: int, most: int | None) -> Curve:
    """Processes of one thread each: estimated, for none was started."""
    points = []
    for B in sorted({1, threads, 2 * threads}):
        lanes = min(B, threads)
        shared = _SHARING if lanes > 1 else (1.0, 1.0)
        rate = lanes / alone.seconds
        low, high = shared[0] * lanes / alone.high, lanes / alone.low
        middle = rate * (1 + shared[1]) / 2
        points.append(Point("concurrent", B, middle, low, high, middle * plain.seconds, False))
    return Curve("concurrent", tuple(points), most)


def _sweep_s(curve: Curve, point: Point, trials: int, steps: int) -> float:
    """Seconds of all trials at the point's B; the last round may have fewer models."""
    full, rest = divmod(trials, point.B)
    if curve.mode == "serial":
        return trials * steps / point.rate
    seconds = full * steps * point.B / point.rate
    if rest:  # an array of fewer models: the nearest that is known is taken for it
        near = next(p for p in curve.points if rest <= p.B)
        seconds += steps * near.B / near.rate
    return seconds


def _reason(chosen: Point, winner: Point, share: float, most: int | None, fit: StepTime) -> str:
    if chosen is not winner:
        return (
            f"Use serial: {winner.mode} with B={winner.B} may be {ratio(winner.gain)} times as fast, but the "
            f"interval{_between(winner, share)} includes no gain."
        )
    if chosen.mode == "serial":
        return "Use serial: nothing that trains several models at once is faster here."
    fixed = 100 * fit.fixed_s / fit.seconds(1)
    room = f"; at most {most} models fit in memory" if most is not None else ""
    why = f"{percent(fixed)} of an array's step of one model does not grow with B" if chosen.mode == "hfta" else (
        "the cores train models side by side"
    )  # fmt: skip
    return (
        f"Use {chosen.mode} with B={chosen.B}: {ratio(chosen.gain)} times serial{_between(chosen, share)}; {why}{room}."
    )


def _between(point: Point, share: float) -> str:
    return interval(point.low * share, point.high * share, ratio)


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
    x = np.array([math.ceil(B / lanes) for B in points])
    t = np.array([point.seconds for point in points.values()])
    weights = 1 / t**2
    x0, t0 = (float(np.average(each, weights=weights)) for each in (x, t))
    spread = float(weights @ (x - x0) ** 2)
    slope = max(0.0, float(weights @ ((x - x0) * (t - t0))) / spread) if spread > 0 else 0.0
    fixed = t0 - slope * x0
    if fixed < 0:
        fixed, slope = 0.0, float(weights @ (x * t) / (weights @ x**2))
    residual = (fixed + slope * x) / t - 1
    scatter = math.sqrt(float(residual @ residual) / max(1, len(x) - 2))
    noise = sum(point.error for point in points.values()) / len(points) / _95_PERCENT
    slowest_s = max(point.high / B for B, point in points.items())
    return StepTime(fixed, slope, lanes, math.hypot(scatter, noise), x0, spread, max(points), slowest_s)
