# SPDX-License-Identifier: MIT
"""The contention probe: against times that the test sets, and for real."""

import pytest

from dnnsuite._files import cache_folder
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler.roofline import Contention, probe_contention
from dnnsuite.profiler.roofline import _contention as module


@pytest.fixture
def spins(monkeypatch, tmp_path):
    """Sets (wall, cpu) of the spins that follow."""
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path))

    def set_to(wall, cpu):
        monkeypatch.setattr(module, "spin", lambda iterations: (wall, cpu))

    return set_to


def test_slower_than_it_was_alone(spins):
    spins(1000, 1000)
    assert probe_contention(2, "here") == Contention(1.0, 0.0, 2)
    spins(3000, 1500)  # waits half of the time, and shares a core or a clock for the rest
    found = probe_contention(2, "here")
    assert (found.slowdown, found.waiting_pct, found.busy) == (3.0, 50.0, True)
    assert "3.00 times as long as alone, 50 %" in str(found)
    spins(500, 500)  # faster than ever: this is what alone is from now on
    assert probe_contention(2, "here").slowdown == 1.0
    spins(1000, 1000)
    assert probe_contention(2, "here").slowdown == 2.0


def test_another_machine_and_another_number_of_threads_have_their_own_best(spins):
    spins(500, 500)
    probe_contention(2, "here")
    spins(1000, 1000)
    assert probe_contention(2, "there").slowdown == 1.0
    assert probe_contention(1, "here").slowdown == 1.0


@pytest.mark.parametrize("text", ["", "[1]", '{"here-1": "x"}', '{"here-1": -5}', "{"])
def test_a_damaged_cache_is_none(spins, text):
    spins(1000, 1000)
    cache_folder().mkdir(exist_ok=True)
    (cache_folder() / "spin.json").write_text(text)
    assert probe_contention(1, "here").slowdown == 1.0


def test_a_cache_that_cannot_be_written_is_no_failure(spins, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "file" / "below"))
    spins(1000, 1000)
    assert probe_contention(1, "here").slowdown == 1.0


def test_for_real():
    found = probe_contention(2, "a test")
    assert found.slowdown > 0.5
    assert 0 <= found.waiting_pct <= 100
    with pytest.raises(InvalidArgument, match="1 or more"):
        probe_contention(0, "a test")
