# SPDX-License-Identifier: MIT
"""Lines that processes add to: whole, in one order for all, in a file and in a database."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dnnsuite.errors import InvalidArgument, Unavailable
from dnnsuite.tuning.journal import FileJournal, TableJournal, database_of


def add(journal, *lines):
    with journal.alone():
        journal.read()
        journal.add(lines)


@pytest.fixture(params=["file", "database"])
def journal(request, tmp_path):
    """Makes journals of one sweep, each as another process has it."""
    if request.param == "file":
        return lambda: FileJournal(tmp_path / "journal.log")
    pytest.importorskip("sqlalchemy")
    return lambda: TableJournal(database_of(f"sqlite:///{tmp_path}/board.db"), "s")


def test_each_reads_what_is_new_in_one_order(journal):
    one, other = journal(), journal()
    add(one, "a", "b")
    assert other.read() == ["a", "b"]
    add(other, "c")
    assert (one.read(), other.read(), journal().read()) == (["a", "b", "c"], ["c"], ["a", "b", "c"])
    assert one.read() == []


def test_lines_of_many_writers_are_all_there_and_together(journal):
    def write(name):
        own = journal()
        for number in range(5):
            add(own, f"{name} {number} first", f"{name} {number} second")

    threads = [threading.Thread(target=write, args=(name,)) for name in "pqr"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = journal().read()
    assert sorted(found) == sorted(f"{name} {n} {part}" for name in "pqr" for n in range(5) for part in
                                   ("first", "second"))  # fmt: skip
    assert [line.replace("first", "second") for line in found[::2]] == found[1::2]


def test_a_database_may_be_opened_by_many_at_once(tmp_path):
    pytest.importorskip("sqlalchemy")
    together = threading.Barrier(8)

    def open_it(number):
        together.wait()
        return TableJournal(database_of(f"sqlite:///{tmp_path}/{number // 8}.db"), "s").read()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(open_it, range(80))) == [[]] * 80


def test_half_a_line_of_a_machine_that_died_is_nobodys(tmp_path):
    one, other = (FileJournal(tmp_path / "journal.log") for _ in range(2))
    add(one, "whole")
    with (tmp_path / "journal.log").open("a") as file:
        file.write("ha")
    assert other.read() == ["whole"]
    add(other, "next")
    assert one.read() == ["whole", "next"]
    assert (tmp_path / "journal.log").read_text() == "whole\nnext\n"


def test_what_is_no_journal_is_refused():
    assert database_of(True) is None
    with pytest.raises(InvalidArgument, match="share is 3: give True"):
        database_of(3)
    with pytest.raises(Unavailable, match="does not answer"):
        database_of("nosuchdb://host/name")
    with pytest.raises(Unavailable, match=r"the driver \w+ for the database of share is not installed.*pip install"):
        database_of("oracle://host/name")
