# SPDX-License-Identifier: MIT
"""Measuring loops: one function until a stop rule ends, two functions in turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from .._C import StopRule, now_ns
from ..errors import InvalidArgument


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
    """Time two functions in turns, in the order of :func:`abba`, for :func:`compare`.

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
