# SPDX-License-Identifier: MIT
"""Loops that measure: one until a rule has enough, two in turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from .._C import StopRule, now_ns
from ..errors import InvalidArgument

__all__ = ["abba", "measure", "measure_pairs"]


def measure(
    step: Callable[[], object],
    rule: StopRule,
    *,
    synchronize: Callable[[], object] | None = None,
    number: int = 1,
) -> StopRule:
    """Time `number` calls of `step` as one sample, again and again until `rule` ends; returns the rule.

    `synchronize` waits for the device before and after a sample. The rule's budget is for the time since the start. A
    sample is the seconds of all its calls.

    Raises InvalidArgument for a `number` below 1, Error for a rule that has ended.
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
    """The order in which two candidates take turns, 0 1 1 0 0 1 1 0 ...: `2 * pairs` entries, in which each pair of
    neighbours has both, and a drift that is linear over two pairs favours neither.

    Raises InvalidArgument for a negative number.
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
    """Seconds of each [pairs], run in turns by :func:`abba`: what :func:`compare` wants. Raises as `abba`."""
    wait = synchronize or (lambda: None)
    seconds: tuple[list[float], list[float]] = ([], [])
    for which in abba(pairs):
        wait()
        begin_ns = now_ns()
        (candidate if which else baseline)()
        wait()
        seconds[which].append(max(now_ns() - begin_ns, 1) * 1e-9)
    return seconds
