# SPDX-License-Identifier: MIT
"""Claims and metrics of processes that share a sweep, in a file and in a database."""

import multiprocessing
import os
import sys
import time

import pytest

from dnnsuite.errors import Error
from dnnsuite.tuning.board import Board
from dnnsuite.tuning.journal import FileJournal, TableJournal, database_of


@pytest.fixture(params=["file", "database"])
def journal(request, tmp_path):
    """Makes journals of one sweep, each as another process has it."""
    if request.param == "file":
        return lambda: FileJournal(tmp_path / "journal.log")
    pytest.importorskip("sqlalchemy")
    return lambda: TableJournal(database_of(f"sqlite:///{tmp_path}/board.db"), "s")


MADE = []


def board_of(*arguments, **named):
    MADE.append(Board(*arguments, **named))
    return MADE[-1]


@pytest.fixture(autouse=True)
def closed():
    """No board gives signs of life after its test: what a test forks would find a database that is in use."""
    yield
    while MADE:
        MADE.pop().close()


def leave_a_claim(journal):
    """Claim trial 7 on another machine, and give no sign of life any more."""
    Board(journal(), "s", worker="elsewhere:1:x").claim({7: 0})
    os._exit(0)


def test_of_two_claims_the_first_counts_and_those_of_the_dead_are_free(journal, monkeypatch):
    one, other = board_of(journal(), "s"), board_of(journal(), "s")
    one.claim({0: 0, 1: 0})
    other.refresh()
    assert other.held() == {0, 1}
    other.claim({1: 0, 2: 0})
    assert (other.mine(1), other.mine(2), one.mine(1)) == (False, True, True)
    one.tell(0, 1, {"loss": 0.1, "odd": float("nan")}, 2.5)
    one.tell_failure(1, 0, "crash", "it fell")
    one.release(0, 0.1)
    other.refresh()
    (row,) = other.rows(0, 0)
    assert (row["loss"], row["odd"] != row["odd"], other.seconds(0)) == (0.1, True, 2.5)
    assert other.failure(1, 0) == ("crash", "it fell")
    assert other.held() == {1}
    other.claim({0: 0})  # which has gone on since
    assert not other.mine(0)
    process = multiprocessing.get_context("fork").Process(target=leave_a_claim, args=(journal,))
    process.start()
    process.join()
    clock = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    observer = board_of(journal(), "s", stale_s=0.2)
    observer.refresh()
    assert observer.held() == {1, 2, 7}
    clock += 0.3
    observer.refresh()
    assert 7 not in observer.held()
    monkeypatch.undo()
    for board in (one, other, observer):
        board.close()
    assert board_of(journal(), "s").workers == 2  # itself, and the one elsewhere, of which it cannot know yet


def test_who_has_left_gives_no_sign_of_life_any_more(journal):
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that one thread leaves while another is about to write
    try:
        for _ in range(60):
            board = board_of(journal(), "s", stale_s=0.001)
            time.sleep(0.002)
            board.close()
    finally:
        sys.setswitchinterval(interval_s)
    assert board_of(journal(), "s").workers == 1


def test_what_one_that_was_taken_for_dead_tells_late_is_told_once(journal):
    slow = board_of(journal(), "s", worker="elsewhere:1:x")
    slow.claim({0: 0})
    other = board_of(journal(), "s", stale_s=0.0)
    other.refresh()
    other.claim({0: 0})
    other.tell(0, 1, {"loss": 0.5}, 1.0)
    slow.tell(0, 1, {"loss": 0.25}, 1.0)
    seen = journal().read()
    assert sum('"epoch 1"' in line for line in seen) == 1
    slow.refresh()
    assert slow.rows(0, 0) == [{"loss": 0.5}]


def test_of_many_that_are_wanted_the_first_free_ones_are_taken(journal):
    one, other = board_of(journal(), "s"), board_of(journal(), "s")
    one.claim({0: 0, 1: 0})
    other.claim(dict.fromkeys(range(6), 0), most=2)
    assert [trial for trial in range(6) if other.mine(trial)] == [2, 3]


def test_results_that_wait_are_written_with_the_next_claim(journal):
    one = board_of(journal(), "s", together_s=1000.0)
    other = board_of(journal(), "s")
    one.claim({0: 0})
    one.tell(0, 1, {"loss": 0.5}, 1.0)
    one.keep_up(busy=True)
    other.refresh()
    assert not other.rows(0, 0)
    one.claim({1: 0})
    other.refresh()
    assert other.rows(0, 0) == [{"loss": 0.5}]
    one.tell(1, 1, {"loss": 0.25}, 1.0)
    one.keep_up(busy=False)
    other.refresh()
    assert other.rows(1, 0) == [{"loss": 0.25}]


def test_a_damaged_line_is_named_with_its_file(tmp_path):
    board = board_of(FileJournal(tmp_path / "journal.log"), "s")
    with (tmp_path / "journal.log").open("a") as file:
        file.write("{damaged}\n")
    with pytest.raises(Error, match=r"journal\.log: not a line of a sweep's journal: '\{damaged\}'"):
        board.refresh()
