# SPDX-License-Identifier: MIT
import itertools
import logging
import time

import pytest
import torch

from dnnsuite import StepRunner
from dnnsuite import _tune as tune
from dnnsuite._step.shard_widths import WidthTrial
from small_steps import batches, loss, make


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """A table of this test's own."""
    made = tune.TuningTable(tmp_path / "tune.json")
    monkeypatch.setattr(tune, "table", lambda: made)
    return made


def run(seconds_of, B=4, threads=2, steps=20):
    """The widths of the steps until the trial is done, and what it chose."""
    trial = WidthTrial(B, threads, "key")
    widths = []
    while not trial.done:
        assert len(widths) < steps
        widths.append(trial.width)
        trial.add(seconds_of[trial.width])
    return widths, trial.width


@pytest.mark.parametrize(("seconds", "best"), [({1: 0.002, 2: 0.001}, 2), ({1: 0.001, 2: 0.002}, 1)])
def test_tries_one_and_as_many_as_keep_all_threads_busy(seconds, best, table):
    assert run(seconds) == ([1, 1, 1, 2, 2, 2], best)
    assert table.get("key") == best


def test_small_models_begin_side_by_side():
    trial = WidthTrial(4, 2, "key", untimed=3, widest_first=True)
    widths = []
    for seconds, captured in [(9.0, False), (0.1, True), (0.001, True), (0.001, True), *[(0.002, True)] * 3]:
        widths.append(trial.width)
        trial.add(seconds, captured)  # the first captured step is the last to warm up
    assert (widths, trial.width, trial.done) == ([2, 2, 2, 2, 1, 1, 1], 2, True)


def test_a_slow_first_step_decides_nothing():
    trial = WidthTrial(4, 2, "key")
    for seconds in (9.0, 0.001, 0.001, 0.002, 0.002, 0.002):
        trial.add(seconds)
    assert trial.width == 1


def test_what_was_found_is_not_tried_again():
    run({1: 0.002, 2: 0.001})
    assert run({}) == ([], 2)


def test_a_heavy_model_is_dealt_out_alone_without_a_trial_of_more():
    assert run({1: 5.0}) == ([1, 1], 1)


def test_python_is_no_work_of_a_model():
    trial = WidthTrial(8, 2, "key")
    trial.add(0.4)
    trial.add(0.4)
    assert not trial.done
    trial = WidthTrial(8, 2, "key")
    trial.add(0.4, captured=True)
    trial.add(0.4, captured=True)
    assert trial.done
    assert trial.width == 1


@pytest.mark.parametrize(("B", "threads"), [(1, 1), (1, 4), (2, 2), (3, 3)])
def test_nothing_to_try_where_every_thread_has_one_model_at_most(B, threads, table):
    assert run({}, B, threads) == ([], 1)
    assert not table.path.exists()


@pytest.mark.parametrize("nonsense", ["wide", -3, 7, None, [1]])
def test_a_choice_that_is_none_of_the_candidates_is_measured_again(nonsense, table):
    table.put("key", nonsense)
    widths, _ = run({1: 0.002, 2: 0.001})
    assert len(widths) == 6


def test_models_whose_step_is_a_few_calls_stay_side_by_side_without_a_trial():
    trial = WidthTrial(8, 1, "key", untimed=3, widest_first=True)
    for seconds, captured in [(9.0, False), (0.1, True), (0.001, True)]:
        assert not trial.done
        trial.add(seconds, captured)
    assert (trial.width, trial.done) == (8, True)


@pytest.mark.parametrize(("listed", "expected"), [(None, [4, 4, 1, 3, 3]), (6, [4, 4, 1, 3])])
def test_a_search_of_widths_records_one_narrow_shard_beside_a_wide_one(listed, expected, monkeypatch):
    """Before the recording of one model serves all, the others take their steps as written together, unless each has
    a batch of its own in the step `listed`."""
    clock = itertools.count(step=0.004)  # of a model that is neither light nor heavy
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    logging.widths_of_tests = written = []  # guards do not look into installed packages

    mine = object()

    def told(part, x, y):
        assert mine is not None  # no other runner has this code
        logging.widths_of_tests.append(part.B)
        return loss(part, x, y)

    (array, optimizer), (other, own) = make(4), make(4)
    with (
        StepRunner(array, optimizer, told, threads=1, audit=0) as runner,
        StepRunner(other, own, loss, threads=1, width=4) as wide,
    ):
        for step, (x, y) in enumerate(batches(4, 12)):
            batch = (list(x), list(y)) if step == listed else (x, y)
            assert torch.equal(runner.step(*batch).losses(), wide.step(x, y).losses())
        assert runner.settled
    assert all(map(torch.equal, array.state_dict().values(), other.state_dict().values()))
    assert written == expected
