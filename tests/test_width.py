# SPDX-License-Identifier: MIT
import pytest

import test_step
from dnnsuite import StepRunner, _tune


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """A table of this test's own."""
    made = _tune.Table(tmp_path / "tune.json")
    monkeypatch.setattr(_tune, "table", lambda: made)
    return made


def run(steps, B=4, threads=2):
    array, optimizer = test_step.make(B)
    runner = StepRunner(array, optimizer, test_step.loss, threads=threads)
    with runner:
        widths = []
        for batch in test_step.batches(B, steps):
            widths.append(runner.width)
            runner.step(*batch)
    return runner, widths


def test_tries_one_and_as_many_as_keep_all_threads_busy(table):
    runner, widths = run(8)
    assert widths[:6] == [1, 1, 1, 2, 2, 2]
    assert runner.width in (1, 2)
    assert runner.width == widths[6] == widths[7]


def test_what_was_found_is_not_tried_again(table):
    found, _ = run(6)
    _, widths = run(2)
    assert set(widths) == {found.width}


def test_a_heavy_model_is_dealt_out_alone_without_a_trial_of_more(monkeypatch):
    monkeypatch.setattr("dnnsuite._width._HEAVY_STEP_S", 0.0)
    _, widths = run(4)
    assert widths == [1, 1, 1, 1]


@pytest.mark.parametrize(("B", "threads"), [(1, 1), (1, 4), (2, 2), (3, 3)])
def test_nothing_to_try_where_every_thread_has_one_model_at_most(B, threads, table):
    _, widths = run(2, B, threads)
    assert widths == [1, 1]
    assert not table.path.exists()
