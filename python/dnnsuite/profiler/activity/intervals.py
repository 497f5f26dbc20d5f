# SPDX-License-Identifier: MIT
"""Sets of time as arrays: union, intersection, difference, and the part of each interval inside a set.

A set is a pair of int64 arrays `[N]`, begins and ends in ns, half open, sorted and disjoint, as :func:`union` returns
for any intervals. All functions take O(N log N) without a Python loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidArgument

Times = NDArray[np.int64]


class TimeSet(NamedTuple):
    """Intervals `[t0_ns[i], t1_ns[i])`, ascending, none empty, none touching the next."""

    t0_ns: Times
    t1_ns: Times


def union(t0_ns: ArrayLike, t1_ns: ArrayLike) -> TimeSet:
    """Return the time covered by any of the intervals `[N]`; empty ones, and those that end before they begin, cover
    none.

    Raises:
        InvalidArgument: the two are not arrays of one length.
    """
    begins, ends = np.asarray(t0_ns, np.int64), np.asarray(t1_ns, np.int64)
    if begins.ndim != 1 or begins.shape != ends.shape:
        raise InvalidArgument(f"begins {begins.shape} and ends {ends.shape} must be arrays of one length")
    some = ends > begins
    if not some.all():
        begins, ends = begins[some], ends[some]
    if not len(begins):
        return TimeSet(begins, ends)
    if (begins[1:] < begins[:-1]).any():
        order = np.argsort(begins)
        begins, ends = begins[order], ends[order]
    reach = np.maximum.accumulate(ends)
    apart = begins[1:] > reach[:-1]
    return TimeSet(begins[np.r_[True, apart]], reach[np.r_[apart, True]])


def of_windows(windows: Iterable[tuple[int, int]]) -> TimeSet:
    """Return the time in any of `windows`, (begin, end) in ns.

    Raises:
        InvalidArgument: there is none that has a length.
    """
    pairs = np.array([*windows], np.int64).reshape(-1, 2)
    found = union(pairs[:, 0], pairs[:, 1])
    if not len(found.t0_ns):
        raise InvalidArgument(f"windows={pairs.tolist()}: none has a length")
    return found


def length_ns(times: TimeSet) -> int:
    """Return the total length of the set, ns."""
    return int((times.t1_ns - times.t0_ns).sum())


def overlapping(a: TimeSet, b: TimeSet) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows (of a, of b) of all pairs that overlap, at most len(a) + len(b). Intervals may touch."""
    first = np.searchsorted(b.t1_ns, a.t0_ns, "right")
    counts = np.searchsorted(b.t0_ns, a.t1_ns, "left") - first
    of_a = np.repeat(np.arange(len(a.t0_ns)), counts)
    within = np.arange(len(of_a)) - np.repeat(np.cumsum(counts) - counts, counts)
    return of_a, np.repeat(first, counts) + within


def intersect(a: TimeSet, b: TimeSet) -> TimeSet:
    """Return the time in both."""
    of_a, of_b = overlapping(a, b)
    return TimeSet(np.maximum(a.t0_ns[of_a], b.t0_ns[of_b]), np.minimum(a.t1_ns[of_a], b.t1_ns[of_b]))


def subtract(a: TimeSet, b: TimeSet) -> TimeSet:
    """Return the time in `a` that is not in `b`."""
    limits = np.iinfo(np.int64)
    rest = union(np.r_[limits.min, b.t1_ns], np.r_[b.t0_ns, limits.max])
    return intersect(a, rest)


def overlap_ns(times: TimeSet, t0_ns: ArrayLike, t1_ns: ArrayLike) -> Times:
    """Return the length of each interval's `[N]` part inside the set, ns; intervals may overlap each other."""
    before = np.r_[0, np.cumsum(times.t1_ns - times.t0_ns)]

    def up_to(t_ns: Times) -> Times:
        begun = np.searchsorted(times.t0_ns, t_ns, "right")
        last = np.maximum(begun - 1, 0)
        unfinished = np.maximum(times.t1_ns[last] - t_ns, 0) if len(times.t1_ns) else 0
        return np.where(begun > 0, before[begun] - unfinished, 0)

    begins, ends = np.asarray(t0_ns, np.int64), np.asarray(t1_ns, np.int64)
    return np.maximum(up_to(ends) - up_to(begins), 0)
