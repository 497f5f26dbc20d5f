# SPDX-License-Identifier: MIT
"""How many models a shard has, by seconds that are made up."""

import pytest
import torch

import dnnsuite
from dnnsuite._step.choices import Asked, ShardWidths, layout_of
from helpers import make_models

B = 4
BATCH = (torch.zeros(B, 2, 3),)

pytestmark = pytest.mark.usefixtures("own_answers")


def array(outputs=2):
    return dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, outputs), B))


def large():
    """More parameters than a small model has, which begin one by one."""
    return dnnsuite.fuse(make_models(lambda: torch.nn.Linear(600, 600), B))


def searched(widths, seconds_of, batch=BATCH, is_captured=False):
    """The widths that were tried until one is chosen, in steps of so many seconds; others take a time between."""
    tried, between = [], sum(seconds_of.values()) / 2
    while widths.follow(batch):
        tried.append(widths.width)
        widths.add(seconds_of.get(widths.width, between), is_captured)
    return tried


def test_a_width_that_is_asked_for_needs_no_trial():
    widths = ShardWidths(array(), Asked(3, 1, True, True))
    assert widths.width == 3
    assert not widths.follow(BATCH)


@pytest.mark.parametrize(
    ("seconds", "order", "best"),
    [
        ({1: 0.04, 2: 0.03, 4: 0.02}, {array: [4, 2], large: [1, 2, 4]}, 4),
        ({1: 0.02, 2: 0.03, 4: 0.04}, {array: [4, 2, 1], large: [1, 2]}, 1),
        ({1: 0.04, 2: 0.02, 4: 0.03}, {array: [4, 2, 1], large: [1, 2, 4]}, 2),
    ],
)
@pytest.mark.parametrize("make", [array, large])
@pytest.mark.parametrize("capture", [True, False])
def test_widths_are_tried_while_each_is_faster_than_the_one_before(seconds, order, best, make, capture):
    steps, models = 3 + (4 if capture else 1), make()
    widths = ShardWidths(models, Asked(None, 1, capture, True))
    assert searched(widths, seconds) == [width for width in order[make] for _ in range(steps)]
    assert widths.width == best
    assert searched(ShardWidths(models, Asked(None, 1, capture, True)), {}) == []  # it is known


@pytest.mark.parametrize(("threads", "order"), [(1, [7, 4, 2, 1]), (2, [4, 2, 1]), (3, [3, 2, 1])])
def test_as_many_as_keep_all_threads_busy_are_tried_beside_powers_of_two(threads, order):
    models = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, 2), 7))
    widths = ShardWidths(models, Asked(None, threads, False, True))
    tried = searched(widths, {width: 0.01 * width for width in order}, (torch.zeros(7, 2),))
    assert tried == [width for width in order for _ in range(4)]


def test_the_first_replayed_step_of_a_width_is_the_last_to_warm_up():
    widths = ShardWidths(array(), Asked(None, 1, True, True))
    steps = [(9.0, False), (0.1, True), *[(0.003, True)] * 3, *[(0.004, True)] * 4]
    tried = []
    for seconds, replayed in steps:
        assert widths.follow(BATCH)
        tried.append(widths.width)
        widths.add(seconds, replayed)
    assert (tried, widths.width, widths.searching) == ([4] * 5 + [2] * 4, 4, False)


def test_heavy_models_are_dealt_out_alone_without_a_trial_of_more():
    assert searched(widths := ShardWidths(large(), Asked(None, 2, False, True)), {1: 5.0}) == [1, 1]
    assert widths.width == 1


def test_light_models_stay_side_by_side_without_a_trial():
    widths = ShardWidths(array(), Asked(None, 1, True, True))
    assert searched(widths, {4: 0.0004}, is_captured=True) == [4, 4]
    assert widths.width == 4


@pytest.mark.parametrize(("replayed", "tried"), [(True, [1, 1]), (False, [1] * 7 + [2] * 7)])
def test_python_is_no_work_of_a_model(replayed, tried):
    """A step that Python runs is not heavy, where a replayed one of as many seconds is."""
    widths = ShardWidths(large(), Asked(None, 2, True, True))
    assert searched(widths, {1: 0.4, 2: 0.5}, is_captured=replayed) == tried
    assert widths.width == 1


@pytest.mark.parametrize("threads", [4, 6])
def test_nothing_to_try_where_every_thread_has_one_model_at_most(threads, own_answers):
    widths = ShardWidths(array(), Asked(None, threads, True, True))
    assert (widths.follow(BATCH), widths.width) == (False, 1)
    assert not own_answers.path.exists()


def test_what_was_found_is_kept_through_an_edit():
    edited = array()
    widths = ShardWidths(edited, Asked(None, 2, True, True))
    assert searched(widths, {1: 0.003, 2: 0.001}) != []
    edited.append(torch.nn.Linear(3, 2))
    after = ShardWidths(edited, Asked(None, 2, True, True), widths)
    assert (after.width, after.searching) == (3, False)


def test_a_search_goes_on_when_the_runner_looks_at_its_array_again():
    again = array()
    widths = ShardWidths(again, Asked(None, 2, True, True))
    widths.follow(BATCH)
    widths.add(0.002, True)
    after = ShardWidths(again, Asked(None, 2, True, True), widths)
    assert searched(after, {1: 0.003, 2: 0.002}, is_captured=True) == [2, 2, 2, 1, 1, 1, 1]


def test_another_array_is_searched_anew():
    widths = ShardWidths(array(), Asked(None, 1, True, True))
    searched(widths, {1: 0.02, 4: 0.01})
    assert ShardWidths(array(5), Asked(None, 1, True, True), widths).searching


def test_a_step_of_models_that_differ_in_size_is_no_trial():
    widths = ShardWidths(array(), Asked(None, 1, True, True))
    assert not widths.follow(None)
    assert widths.searching


def test_models_that_go_different_ways_have_shards_of_their_own():
    widths = ShardWidths(edited := array(), Asked(None, 1, True, True))
    widths.follow(BATCH)
    assert not widths.follow(BATCH, parted=True)
    assert (widths.width, widths.searching) == (1, False)
    edited.append(torch.nn.Linear(3, 2))
    assert ShardWidths(edited, Asked(None, 1, True, True), widths).width == 1
    asked = ShardWidths(array(), Asked(2, 1, True, True))
    asked.follow(BATCH, parted=True)
    assert asked.width == 2


class Headed(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.head = base, torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.base(x)))


def sharing():
    base = torch.nn.Linear(8, 8).requires_grad_(False)
    return dnnsuite.fuse([Headed(base) for _ in range(B)])


def own(rows):
    return torch.zeros(B, rows, 8)


def shared(rows):
    return dnnsuite.stack(torch.zeros(rows, 8), B=B)


def test_a_layout_is_known_by_what_is_shared_and_by_its_size():
    assert layout_of(({"x": own(8)}, shared(2))) == ((False, 7), (True, 5))
    assert layout_of((own(5), 3, None)) == layout_of((own(6),))  # 40 and 48 numbers
    assert layout_of((own(5),)) != layout_of((own(50),)) != layout_of((shared(50),))


def width_of(widths, batch):
    timed = widths.follow(batch)
    return widths.width, timed


def test_models_that_share_products_are_as_many_to_a_shard_as_give_them_enough_rows():
    widths = ShardWidths(models := sharing(), asked := Asked(None, 1, True, True))
    assert width_of(widths, (own(256),)) == (4, False)
    assert width_of(widths, (own(512),)) == (4, False)  # one of another size is not followed
    assert width_of(widths, (own(256),)) == (4, False)
    assert [width_of(widths, (own(512),))[0] for _ in range(2)] == [4, 2]  # once more before it is
    assert [width_of(widths, (own(5000),))[0] for _ in range(2)] == [2, 1]
    assert not widths.searching
    models.drop(0)
    after = ShardWidths(models, asked, widths)
    assert [width_of(after, (batch[1:],))[0] for batch in (own(256), own(256), own(512), own(512))] == [1, 3, 3, 2]


@pytest.mark.parametrize(
    ("batch", "width"),
    [
        ({"ids": torch.zeros(B, 4, 128, dtype=torch.int64)}, 2),
        ((torch.zeros(B, 4, 128, 64), torch.zeros(B, 4)), 2),
        ((torch.zeros(B, 4, 64),), 4),
        ((shared(8), own(1)), 4),
        ((shared(5000), own(1)), 4),
        ((own(2000), shared(1)), 1),
    ],
)
def test_rows_are_tokens_or_samples_with_features_of_each_model(batch, width):
    assert width_of(ShardWidths(sharing(), Asked(None, 1, True, True)), batch) == (width, False)


@pytest.mark.parametrize("capture", [True, False])
def test_steps_that_python_runs_take_all_models_until_the_rows_are_many(capture, own_answers):
    for rows, width, whole in ((1024, 4, True), (2048, 2, False)):
        widths = ShardWidths(sharing(), Asked(None, 1, capture, True))
        widths.follow((own(rows),))
        assert widths.whole_if_eager == whole
        assert capture or widths.width == width
    assert not own_answers.path.exists()
