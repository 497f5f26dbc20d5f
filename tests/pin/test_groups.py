# SPDX-License-Identifier: MIT
import os
from pathlib import Path

import pytest

from dnnsuite.pin import clean, find
from dnnsuite.pin._groups import owner_state, run_name
from pin_machines import write_tree


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
    assert done == ["kept: processes are in it, end them with --kill"]
    assert find(str(tree))[0].to_dict()["folders"]


def test_one_run_by_its_name(tree: Path) -> None:
    live = next(left for left in find(str(tree)) if left.state == "live")
    assert ("removed" in [what for _, what in clean(root=str(tree), only=live.name)]) is True
    assert not [left for left in find(str(tree)) if left.state == "live"]
