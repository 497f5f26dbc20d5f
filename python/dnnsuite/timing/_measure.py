# SPDX-License-Identifier: MIT
"""Measuring loops: one function until a stop rule ends, two functions in turns, and mila-iqia/training's protocol.

In the protocol `number` batches are timed together, `repeat` times; the first are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from .._C import RunningStatistics, StopRule, now_ns
from ..errors import Error, InvalidArgument


def measure(
    step: Callable[[], object], rule: StopRule, *, synchronize: Callable[[], object] | None = None, number: int = 1
) -> StopRule:
    """Time `number` calls of `step` as one sample, again and again until `rule` ends.

    Args:
        step: function to time.
        rule: stop rule, for example `Fixed(20)` or `Precision(0.01)`; its budget counts from the start of the first
            sample.
        synchronize: function that waits for the device, called before and after a sample.
        number: calls in one sample. A sample is the seconds of all its calls.

    Returns:
        The rule, with the seconds of all samples.

    Raises:
        InvalidArgument: `number` is below 1.
        Error: the rule has ended already.

    >>> from dnnsuite import timing
    >>> rule = timing.measure(lambda: sum(range(100)), timing.Fixed(20))
    >>> len(rule.seconds), bool(rule.seconds.min() > 0)
    (20, True)
    """
    if number < 1:
        raise InvalidArgument(f"number={number}: a sample needs at least 1 call")
    wait = synchronize or (lambda: None)
    wait()
    start_ns = now_ns()
    status = rule.status
    while True:
        begin_ns = now_ns()
        for _ in range(number):
            step()
        wait()
        end_ns = now_ns()
        status = rule.add(max(end_ns - begin_ns, 1) * 1e-9, (end_ns - start_ns) * 1e-9)
        if status != "running":
            return rule


def abba(pairs: int) -> list[Literal[0, 1]]:
    """List the order in which two candidates take turns: 0 1 1 0 0 1 1 0, and so on.

    Each pair of neighbours has both candidates, and a drift that is linear over two pairs favours neither.

    Args:
        pairs: number of pairs; the list has twice as many entries.

    Raises:
        InvalidArgument: `pairs` is negative.

    >>> from dnnsuite import timing
    >>> timing.abba(3)
    [0, 1, 1, 0, 0, 1]
    """
    if pairs < 0:
        raise InvalidArgument(f"pairs={pairs}: must not be negative")
    order: list[Literal[0, 1]] = []
    for pair in range(pairs):
        order += [1, 0] if pair % 2 else [0, 1]
    return order


def measure_pairs(
    baseline: Callable[[], object],
    candidate: Callable[[], object],
    pairs: int,
    *,
    synchronize: Callable[[], object] | None = None,
) -> tuple[list[float], list[float]]:
    """Time two functions alternately, in the order of :func:`abba`, for :func:`compare`.

    Args:
        baseline, candidate: functions to time.
        pairs: number of samples of each.
        synchronize: function that waits for the device, called before and after a sample.

    Returns:
        Seconds of each sample: of the baseline, and of the candidate.

    Raises:
        InvalidArgument: `pairs` is negative.

    >>> from dnnsuite import timing
    >>> slow, fast = timing.measure_pairs(lambda: sum(range(20000)), lambda: None, 10)
    >>> timing.compare(slow, fast).verdict
    'faster'
    """
    wait = synchronize or (lambda: None)
    seconds: tuple[list[float], list[float]] = ([], [])
    for which in abba(pairs):
        wait()
        begin_ns = now_ns()
        (candidate if which else baseline)()
        wait()
        seconds[which].append(max(now_ns() - begin_ns, 1) * 1e-9)
    return seconds


_QUIET = 0.05  # of the average


class RepeatNumber:
    """Time `repeat` observations of `number` batches each, and drop the first `skip`.

    Call `run(step)`, or write the loop::

        perf = RepeatNumber(repeat=15, number=5, skip=10)
        while not perf.done:
            with perf:  # synchronises on both sides, if `synchronize` was given
                for _ in range(perf.number):
                    step()

    Each observation is exactly `number` batches long; dropped observations are in none of the statistics, and an
    observation that raised is not kept.

    Args:
        repeat: number of observations, the dropped ones among them.
        number: batches in an observation.
        skip: observations to drop at the beginning.
        budget_s: seconds after which no further observation begins.
        synchronize: function that waits for the device, called before and after an observation.

    Raises:
        InvalidArgument: unless `repeat > skip >= 0` and `number >= 1`.

    >>> from dnnsuite import timing
    >>> perf = timing.RepeatNumber(repeat=15, number=5, skip=10)
    >>> _ = perf.run(lambda: None)
    >>> perf.train["count"]
    5
    """

    def __init__(
        self,
        repeat: int,
        number: int,
        skip: int = 10,
        *,
        budget_s: float = math.inf,
        synchronize: Callable[[], object] | None = None,
    ) -> None:
        if skip < 0 or repeat <= skip:
            raise InvalidArgument(f"repeat={repeat}, skip={skip}: repeat must be greater than skip, skip not negative")
        if number < 1:
            raise InvalidArgument(f"number={number}: an observation needs at least 1 batch")
        if not budget_s > 0:
            raise InvalidArgument(f"budget_s={budget_s}: must be positive")
        self.repeat, self.number, self.skip, self.budget_s = repeat, number, skip, budget_s
        self.seconds: list[float] = []  # of every observation, the dropped ones first
        self._synchronize = synchronize or (lambda: None)
        self._spent_s = 0.0
        self._began_ns: int | None = None

    def run(self, step: Callable[[], object], synchronize: Callable[[], object] | None = None) -> RepeatNumber:
        """Call `step` for one batch at a time until done; `synchronize` waits for the device around observations."""
        if synchronize is not None:
            self._synchronize = synchronize
        while not self.done:
            with self:
                for _ in range(self.number):
                    step()
        return self

    def add(self, seconds: float) -> bool:
        """Add an observation that was timed elsewhere; returns `done`.

        Raises InvalidArgument for a time that is not positive and finite, Error when all were made already.
        """
        if not (math.isfinite(seconds) and seconds > 0):
            raise InvalidArgument(f"seconds={seconds}: an observation takes a positive, finite time")
        if len(self.seconds) == self.repeat:
            raise Error(f"all {self.repeat} observations are made")
        self.seconds.append(seconds)
        self._spent_s += seconds
        return self.done

    def __enter__(self) -> RepeatNumber:
        if self._began_ns is not None:
            raise Error("an observation has begun already: RepeatNumber does not nest")
        self._synchronize()
        self._began_ns = now_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        began_ns, self._began_ns = self._began_ns, None
        if kind is None and began_ns is not None:
            self._synchronize()
            self.add(max(now_ns() - began_ns, 1) * 1e-9)

    @property
    def done(self) -> bool:
        """True once all observations are made, or the budget is spent."""
        return len(self.seconds) == self.repeat or self._spent_s >= self.budget_s

    def __repr__(self) -> str:
        made = f"{len(self.seconds)} of {self.repeat} observations"
        return f"RepeatNumber({made}, number={self.number}, skip={self.skip}, {self.status})"

    @property
    def status(self) -> str:
        """`running`; `timeout`: the budget ended it before all `repeat` observations; `converged`: the deviation of the
        kept ones is below 5 % of their average, which is what mila's report asks of a run; otherwise `noisy`."""
        if not self.done:
            return "running"
        if len(self.seconds) < self.repeat:
            return "timeout"
        train = self.train
        return "converged" if train["count"] > 1 and train["sd"] < _QUIET * train["avg"] else "noisy"

    @property
    def train(self) -> dict[str, Any]:
        """Seconds of the kept observations: avg, count, max, min, sd (of the population, as mila's), unit.

        NaN where nothing is left, with a count of 0.
        """
        kept = RunningStatistics()
        for seconds in self.seconds[self.skip :]:
            kept.add(seconds)
        n = kept.count
        sd = math.sqrt(kept.variance * (n - 1) / n) if n > 1 else (0.0 if n else math.nan)
        return {"avg": kept.mean, "count": n, "max": kept.max, "min": kept.min, "sd": sd, "unit": "s"}

    def train_item(self, batch_size: float) -> dict[str, Any]:
        """Compute items per second: `batch_size * number / seconds` of the average, the shortest and the longest
        observation.

        Raises InvalidArgument for a batch size that is not positive.
        """
        if not batch_size > 0:
            raise InvalidArgument(f"batch_size={batch_size}: must be positive")
        train, items = self.train, batch_size * self.number
        most, least = items / train["min"], items / train["max"]
        return {"avg": items / train["avg"], "max": most, "min": least, "range": most - least, "unit": "items/sec"}
