# SPDX-License-Identifier: MIT
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite import nn
from dnnsuite.nn.random_streams import DrawnTogether, advance, pass_over

B, LAYERS = 2, 3


def layers():
    made = torch.nn.Sequential(*(nn.Dropout(0.5, B=B) for _ in range(LAYERS)))
    nn.seed(made, range(B))
    return made


def drawn(array, calls):
    """Make calls of (what, layer); return the draws as they are at the end."""
    draws = []
    for what, layer in calls:
        stream = array[layer].rng
        if what == "draw":
            draws.append(advance(stream))
        elif what == "pass over":
            pass_over(stream)
        elif what == "draw for one model":
            draws.append(advance(stream.narrow(0, 1, 1)))
        else:
            draws += nn.get_rng_state(array).values()
    return [draw.tolist() for draw in draws]


kinds = st.sampled_from(["draw"] * 8 + ["pass over", "draw for one model", "look"])
steps = st.lists(st.lists(st.tuples(kinds, st.integers(0, LAYERS - 1)), max_size=60), max_size=3)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_draws_are_those_of_one_stream_after_the_other(steps):
    alone, array = layers(), layers()
    together = DrawnTogether(array, torch.device("cpu"))
    for calls in steps:
        expected = drawn(alone, calls)
        with together.step():
            assert drawn(array, calls) == expected
    assert all(map(torch.equal, nn.get_rng_state(array).values(), nn.get_rng_state(alone).values()))


def test_after_an_error_the_streams_are_where_the_draws_came_to():
    array = layers()
    with pytest.raises(IndexError), DrawnTogether(array, torch.device("cpu")).step():
        drawn(array, [("draw", 1), ("draw", 1), ("draw", LAYERS)])
    assert [stream[:, 1].tolist() for stream in nn.get_rng_state(array).values()] == [[0, 0], [2, 2], [0, 0]]
