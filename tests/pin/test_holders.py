# SPDX-License-Identifier: MIT
"""Runs that hold the same CPUs know of each other; dead ones and those around a run count for nothing."""

import os
import subprocess
import sys

import pytest

from dnnsuite import pin
from dnnsuite.pin import _holders
from dnnsuite.pin._groups import run_name


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DNNSUITE_PINS", str(tmp_path / "pins"))
    return tmp_path / "pins"


def test_two_runs_on_the_same_cpus(folder):
    mine, other = run_name(), run_name()
    _holders.hold(other, "2-5")
    _holders.hold(mine, "0-3")
    (found,) = _holders.overlapping(mine, "0-3")
    assert (found.name, found.process, found.cpus) == (other, os.getpid(), "2-3")
    assert "CPUs 2-3 are held by another run" in str(found)
    assert _holders.overlapping(mine, "0-1") == []
    _holders.release(other)
    _holders.release(other)
    assert _holders.overlapping(mine, "0-3") == []


def test_a_run_whose_owner_is_gone_and_one_around_this_count_for_nothing(folder, monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    dead, around = run_name(child.pid), run_name()
    _holders.hold(dead, "0-3")
    assert [each.name for each in _holders.overlapping("me", "0")] == [dead]
    child.communicate(b"\n")
    _holders.hold(around, "0-3")
    monkeypatch.setenv("DNNSUITE_PIN_RUN", f"{around}/student0")
    assert _holders.overlapping("me", "0") == []
    assert [path.name for path in folder.iterdir()] == [around]  # the dead one's file is removed


def test_a_place_that_cannot_be_written_does_no_harm(folder):
    folder.write_text("a file is in the way")
    _holders.hold(run_name(), "0")
    assert _holders.overlapping("me", "0") == []
    _holders.release("me")


def test_a_partition_says_that_it_shares_its_cpus(folder):
    plan = pin.make_plan(pin.Topology.read(), slots=1, allow_smt_split=True)
    with pin.Partition(plan, "affinity") as first, pin.Partition(plan, "affinity") as second:
        assert first.run(0, ["true"]).ok
        assert second.record()["overlaps"] == []  # nothing of it has been started
        assert second.run(0, ["true"]).ok
        assert [each.name for each in second.overlapping()] == [first.name]
        assert first.name in second.record()["overlaps"][0]
        assert not second.record()["comparable"]
    assert list(folder.iterdir()) == []
