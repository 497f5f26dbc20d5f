# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite import _tune as tune
from dnnsuite._step.shard_widths import Asked, LoopTrial, ShardWidths, WidthTrial
from helpers import make_models

B = 4
BATCH = (torch.zeros(B, 2, 3),)


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """A table of this test's own."""
    made = tune.TuningTable(tmp_path / "tune.json")
    monkeypatch.setattr(tune, "table", lambda: made)
    return made


def array():
    return dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, 2), B))


def captured():
    return "captured"


def eager():
    return "eager: a reason"


def searched(widths, one_s, all_s):
    """Give the search times of captured steps until it is done; return the number of steps."""
    count = 0
    while widths.searching:
        trial, loop = widths.follow(BATCH, captured)
        assert isinstance(trial, WidthTrial)
        assert not loop
        widths.add(one_s if widths.width == 1 else all_s, True)
        count += 1
    return count


def test_a_width_that_is_asked_for_needs_no_trial():
    widths = ShardWidths(array(), Asked(3, 1, True, True))
    assert widths.width == 3
    assert widths.follow(BATCH, captured) == (None, False)


def test_the_faster_width_is_found_and_kept_through_an_edit():
    edited = array()
    widths = ShardWidths(edited, Asked(None, 2, True, True))
    assert searched(widths, 0.003, 0.001) > 0
    assert widths.width == 2
    edited.append(torch.nn.Linear(3, 2))
    after = ShardWidths(edited, Asked(None, 2, True, True), widths)
    assert (after.width, after.searching) == (3, False)


def test_another_array_is_searched_anew():
    widths = ShardWidths(array(), Asked(None, 1, True, True))
    searched(widths, 0.0015, 0.001)
    other = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, 5), B))
    assert ShardWidths(other, Asked(None, 1, True, True), widths).searching


def test_a_step_of_models_that_differ_in_size_is_no_trial():
    widths = ShardWidths(array(), Asked(None, 1, True, True))
    assert widths.follow(None, captured) == (None, False)
    assert widths.searching


def test_steps_that_cannot_be_captured_are_compared_with_a_loop():
    widths = ShardWidths(array(), Asked(None, 1, True, True))
    ways = []
    while widths.in_a_loop is None:
        trial, loop = widths.follow(BATCH, eager)
        if isinstance(trial, LoopTrial):
            ways.append(loop)
            widths.add_of_loop(0.001 if loop else 0.004, True)
        else:
            widths.add(0.004, False)
    assert ways == [False] * 3 + [True] * 3
    assert widths.in_a_loop is True
    assert widths.refusal == "eager: a reason"
    assert widths.follow(BATCH, eager) == (None, True)


def test_a_width_that_is_asked_for_is_not_compared_with_a_loop():
    widths = ShardWidths(array(), Asked(2, 1, True, True))
    assert widths.follow(BATCH, eager) == (None, False)
    assert (widths.width, widths.in_a_loop) == (2, False)


def test_models_that_go_different_ways_have_shards_of_their_own():
    widths = ShardWidths(array(), Asked(None, 1, True, True))
    widths.follow(BATCH, captured)
    assert widths.follow(BATCH, captured, parted=True) == (None, False)
    assert (widths.width, widths.searching) == (1, False)
    asked = ShardWidths(array(), Asked(2, 1, True, True))
    asked.follow(BATCH, captured, parted=True)
    assert asked.width == 2
