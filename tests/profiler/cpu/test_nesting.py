# SPDX-License-Identifier: MIT
"""Nesting against trees drawn at random, whose answer is known."""

from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.profiler.cpu._classes import nest

trees = st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=4), max_leaves=15)


def lay_out(tree, begin, thread, parent, depth, events):
    """Events of a tree, one instant of its own before and after each child; returns the end."""
    me = len(events)
    events.append(None)
    t, inner = begin, 0
    for child in tree:
        child_begin = t + 1
        t = lay_out(child, child_begin, thread, me, depth + 1, events)
        inner += t - child_begin
    end = t + 1
    events[me] = (thread, begin, end, parent, depth, end - begin - inner)
    return end


@given(st.lists(trees, min_size=1, max_size=3), st.randoms())
def test_a_tree_is_found_again_in_any_order(forest, random):
    events = []
    for thread, tree in enumerate(forest):
        lay_out(tree, 0, thread, -1, 0, events)
    order = list(range(len(events)))
    random.shuffle(order)
    found = nest(*([events[i][column] for i in order] for column in range(3)))
    for place, i in enumerate(order):
        _, _, _, parent, depth, self_ns = events[i]
        assert found.depths[place] == depth
        assert found.self_ns[place] == self_ns
        assert (order[found.parents[place]] if found.parents[place] >= 0 else -1) == parent
    total = sum(t1 - t0 for _, t0, t1, parent, _, _ in events if parent < 0)
    assert sum(found.self_ns) == total  # self times add up to the time of the outermost


def test_events_that_touch_do_not_nest():
    assert nest([1, 1], [0, 5], [5, 9]).parents == [-1, -1]
    assert nest([1, 2], [0, 1], [9, 2]).parents == [-1, -1]
    assert nest([], [], []).parents == []
