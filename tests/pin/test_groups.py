# SPDX-License-Identifier: MIT
"""Runs that hold the same CPUs know of each other; dead ones and those around a run count for nothing."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dnnsuite import pin
from dnnsuite.pin import _groups, clean, find
from dnnsuite.pin._groups import RUN_VARIABLE, Members, end, of_run, owner_state, resident_bytes, run_name
from pin_machines import write_tree
from waiting import wait_for


def names() -> dict[str, str]:
    mine = run_name()
    _, process, start, namespace, number = mine.split("-")
    return {
        "live": mine,
        "stale": f"dnnsuite-{process}-{int(start) - 1}-{namespace}-{number}",  # the pid came round
        "foreign": f"dnnsuite-{process}-{start}-1-{number}",
        "": "dnnsuite-ci-12",
    }


def test_a_name_tells_whose_it_is() -> None:
    for state, name in names().items():
        assert owner_state(name) == state
    assert owner_state(names()["stale"] + "-supervisor") == "stale"
    assert run_name().split("-")[1] == str(os.getpid())
    assert run_name() != run_name()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Plain folders in the place of version 1's pids."""
    write_tree(
        tmp_path,
        {"proc/self/mountinfo": "39 31 0:36 / /cg rw - cgroup cgroup rw,pids\n", "proc/self/cgroup": "8:pids:/\n"},
    )
    for name in names().values():
        (tmp_path / "cg/a" / name / "student0.1").mkdir(parents=True)
    return tmp_path


def test_only_the_groups_of_the_dead_are_removed(tree: Path) -> None:
    found = {left.state: left for left in find(str(tree))}
    assert set(found) == {"live", "stale", "foreign"}
    done = {left.state: what for left, what in clean(root=str(tree))}
    assert done == {"live": "kept: live", "stale": "removed", "foreign": "kept: foreign"}
    assert {left.state for left in find(str(tree))} == {"live", "foreign"}
    assert (tree / "cg/a/dnnsuite-ci-12/student0.1").is_dir()  # no name of ours


def test_processes_keep_a_group_unless_they_are_to_be_ended(tree: Path) -> None:
    stale = next(left for left in find(str(tree)) if left.state == "stale")
    procs = Path(stale.folders[0][1], "cgroup.procs")
    procs.write_text("999999999\n")
    done = [what for left, what in clean(root=str(tree)) if left.state == "stale"]
    assert done == ["kept, because processes are in it; end them with --kill"]
    assert find(str(tree))[0].to_dict()["folders"]


def test_one_run_by_its_name(tree: Path) -> None:
    live = next(left for left in find(str(tree)) if left.state == "live")
    assert ("removed" in [what for _, what in clean(root=str(tree), only=live.name)]) is True
    assert not [left for left in find(str(tree)) if left.state == "live"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DNNSUITE_PINS", str(tmp_path / "pins"))
    return tmp_path / "pins"


def test_two_runs_on_the_same_cpus(folder):
    mine, other = run_name(), run_name()
    _groups.hold(other, "2-5")
    _groups.hold(mine, "0-3")
    (found,) = _groups.overlapping(mine, "0-3")
    assert (found.name, found.process, found.cpus) == (other, os.getpid(), "2-3")
    assert "CPUs 2-3 are held by another run" in str(found)
    assert _groups.overlapping(mine, "0-1") == []
    _groups.release(other)
    _groups.release(other)
    assert _groups.overlapping(mine, "0-3") == []


def test_a_run_whose_owner_is_gone_and_one_around_this_count_for_nothing(folder, monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    dead, around = run_name(child.pid), run_name()
    _groups.hold(dead, "0-3")
    assert [each.name for each in _groups.overlapping("me", "0")] == [dead]
    child.communicate(b"\n")
    _groups.hold(around, "0-3")
    monkeypatch.setenv("DNNSUITE_PIN_RUN", f"{around}/student0")
    assert _groups.overlapping("me", "0") == []
    assert [path.name for path in folder.iterdir()] == [around]  # the dead one's file is removed


def test_a_place_that_cannot_be_written_does_no_harm(folder):
    folder.write_text("a file is in the way")
    _groups.hold(run_name(), "0")
    assert _groups.overlapping("me", "0") == []
    _groups.release("me")


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


def test_a_run_is_known_by_its_variable_through_forks_and_sessions() -> None:
    name = f"test-{os.getpid()}"
    script = "setsid sleep 1000 & env -u DNNSUITE_PIN_RUN sleep 1000 & sleep 1000"
    with subprocess.Popen(["sh", "-c", script], env={**os.environ, RUN_VARIABLE: f"{name}/student0"}) as process:
        wait_for(lambda: len(of_run(name)) >= 4)
        assert len(of_run(name)) == 4  # also the one whose variable was taken away: its parent has it
        assert of_run(f"{name}/student0") == of_run(name)
        assert of_run(f"{name}/student") == of_run(name[:-1]) == []
        assert resident_bytes(of_run(name)) > 0
        assert end(name) == []
    assert process.returncode == -9
    assert of_run(name) == []
    assert resident_bytes([process.pid]) == 0


def test_members_are_followed_without_searching_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr(_groups, "of_run", lambda name: searched.append(name) or [1])
    clock = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: clock)  # the time for a search does not come by itself
    with subprocess.Popen(["sh", "-c", "sleep 1000 & (sleep 1000) & wait"], start_new_session=True) as process:
        members = Members("test", process.pid)
        assert process.pid in wait_for(lambda: len(found := members.processes()) >= 3 and found)
        assert searched == []
        os.killpg(process.pid, 9)
    clock += 60
    assert members.processes() == [1]  # what a search finds counts, from time to time
    assert searched == ["test"]
