# SPDX-License-Identifier: MIT
"""Laws of sets of time, against sets of integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler.activity import intervals as iv

PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(-3, 20)).map(lambda p: (p[0], sum(p))), max_size=12)


def made(pairs):
    return iv.union([a for a, _ in pairs], [b for _, b in pairs])


def instants(pairs):
    """The oracle: the set of integer instants that the intervals cover."""
    return {t for a, b in pairs for t in range(a, b)}


def pairs_of(times):
    return list(zip(times.t0_ns.tolist(), times.t1_ns.tolist(), strict=True))


def is_canonical(times):
    return (times.t1_ns > times.t0_ns).all() and (times.t0_ns[1:] > times.t1_ns[:-1]).all()


@given(PAIRS)
def test_union_covers_what_any_covers_and_no_more(pairs):
    found = made(pairs)
    assert is_canonical(found)
    assert instants(pairs_of(found)) == instants(pairs)
    assert iv.length_ns(found) == len(instants(pairs)) <= sum(max(b - a, 0) for a, b in pairs)


@given(PAIRS)
def test_union_is_idempotent_and_blind_to_order(pairs):
    once = made(pairs)
    assert pairs_of(iv.union(*once)) == pairs_of(once)
    assert pairs_of(made(pairs[::-1])) == pairs_of(once)
    assert pairs_of(made(pairs + pairs)) == pairs_of(once)


@given(PAIRS, PAIRS)
def test_intersection_and_difference(a, b):
    both, rest = iv.intersect(made(a), made(b)), iv.subtract(made(a), made(b))
    assert instants(pairs_of(both)) == instants(a) & instants(b)
    assert instants(pairs_of(rest)) == instants(a) - instants(b)
    assert is_canonical(rest)
    assert iv.length_ns(both) + iv.length_ns(rest) == iv.length_ns(made(a))  # gaps + union = span
    assert pairs_of(iv.intersect(made(b), made(a))) == pairs_of(both)


@given(PAIRS, PAIRS)
def test_containment(a, b):
    whole = made(a + b)
    assert iv.length_ns(iv.intersect(whole, made(a))) == iv.length_ns(made(a)) <= iv.length_ns(whole)
    assert iv.length_ns(iv.subtract(made(a), whole)) == 0


@given(PAIRS, PAIRS)
def test_overlap_of_each_row(pairs, rows):
    rows = [(a, max(a, b)) for a, b in rows]
    found = iv.overlap_ns(made(pairs), [a for a, _ in rows], [b for _, b in rows])
    assert found.tolist() == [len(instants(pairs) & instants([row])) for row in rows]


def test_touching_intervals_are_one_and_empty_ones_none():
    assert pairs_of(made([(5, 7), (1, 5), (9, 9), (8, 3)])) == [(1, 7)]
    assert pairs_of(made([])) == []


def test_times_of_a_machine_that_runs_for_a_year_are_exact():
    year = 365 * 86400 * 10**9
    assert pairs_of(made([(year, year + 1), (year + 1, year + 3)])) == [(year, year + 3)]
    assert iv.overlap_ns(made([(year, year + 3)]), np.array([year + 2]), np.array([year + 9])).tolist() == [1]


def test_what_cannot_be_a_set_is_refused():
    with pytest.raises(InvalidArgument, match="one length"):
        iv.union([1, 2], [3])
    with pytest.raises(InvalidArgument, match="none has a length"):
        iv.of_windows([(5, 5)])
    with pytest.raises(InvalidArgument, match="none has a length"):
        iv.of_windows([])
