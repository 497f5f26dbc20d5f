# SPDX-License-Identifier: MIT
"""Claims and metrics of processes that share a sweep, in a storage of Optuna's."""

import multiprocessing
import os
import time

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning.board import Board
from dnnsuite.tuning.journal import FileJournal

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.WARNING)


def leave_a_claim(path):
    """Claim trial 7 on another machine, and give no sign of life any more."""
    Board(journal(path), "s", worker="elsewhere:1:x").claim({7: 0})
    os._exit(0)


def test_of_two_claims_the_first_counts_and_those_of_the_dead_are_free(tmp_path):
    storage = journal(tmp_path / "journal.log")
    one, other = Board(storage, "s"), Board(storage, "s")
    one.claim({0: 0, 1: 0})
    other.refresh()
    assert other.free([0, 1, 2]) == {2}
    other.claim({1: 0, 2: 0})
    assert (other.mine(1), other.mine(2), one.mine(1)) == (False, True, True)
    one.tell(0, 1, {"loss": 0.1, "odd": float("nan")}, 2.5)
    one.tell_failure(1, 0, "crash", "it fell")
    one.release(0, 0.1)
    other.refresh()
    (row,) = other.rows(0, 0)
    assert (row["loss"], row["odd"] != row["odd"], other.seconds(0)) == (0.1, True, 2.5)
    assert other.failure(1, 0) == ("crash", "it fell")
    assert other.free([0, 1]) == {0}
    other.claim({0: 0})  # which has gone on since
    assert not other.mine(0)
    process = multiprocessing.get_context("fork").Process(target=leave_a_claim, args=(tmp_path / "journal.log",))
    process.start()
    process.join()
    observer = Board(storage, "s", stale_s=0.2)
    observer.refresh()
    assert observer.free([7]) == set()
    deadline = time.monotonic() + 20
    while not observer.free([7]) and time.monotonic() < deadline:
        observer.refresh()
        time.sleep(0.02)
    assert observer.free([7]) == {7}
    for board in (one, other, observer):
        board.close()
    assert Board(storage, "s").workers == 1


def test_a_storage_as_it_is():
    storage = optuna.storages.InMemoryStorage()
    assert storage_of(storage) is storage
    with pytest.raises(InvalidArgument, match="share is 3"):
        storage_of(3)
