# SPDX-License-Identifier: MIT
"""Runs in the virtual machine of tests/pin/test_guest.py: version 2 with every controller, 2 nodes, SMT."""

import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

from dnnsuite import pin
from dnnsuite._C import GroupTree, launch
from dnnsuite.pin import errors
from dnnsuite.pin._groups import of_run

ROOT = Path("/sys/fs/cgroup")
PLAN = pin.make_plan(pin.Topology.read(), 2, reserve_memory="50%")
SMALL = replace(PLAN, slots=tuple(replace(slot, memory_bytes=48 << 20) for slot in PLAN.slots))
HOG = [sys.executable, "-S", "-c", "b = bytearray(150 << 20)"]


def check_topology_has_siblings_and_nodes():
    found = pin.Topology.read()
    assert len(found.cpus) == 8, found
    assert sorted({cpu.core for cpu in found.cpus}) == [0, 2, 4, 6], found.cpus
    assert {cpu.node for cpu in found.cpus} == {0, 1}
    assert [(slot.cpus, slot.mems) for slot in PLAN.slots] == [("0-3", "0"), ("4-7", "1")], PLAN
    assert PLAN.comparable, PLAN.reasons


def limits_hold(partition):
    assert partition.record()["cpus"] == "cgroup v2", partition.record()
    with open("/tmp/out", "w") as out:
        outcome = partition.run(1, ["sh", "-c", "cat /proc/self/status"], files=(-1, out.fileno(), -1))
    text = Path("/tmp/out").read_text()
    assert "Cpus_allowed_list:\t4-7\n" in text, text
    assert "Mems_allowed_list:\t1\n" in text, text
    assert outcome.verified["method"] == "clone_into_cgroup", outcome
    assert outcome.ok, outcome


def memory_that_runs_out(partition):
    outcome = partition.run(0, HOG)
    assert (outcome.oom_killed, outcome.oom_scope, outcome.returncode) == (True, "group", -9), outcome
    outcome = partition.run(0, ["sh", "-c", "kill -9 $$"])
    assert (outcome.oom_killed, outcome.returncode) == (False, -9), outcome


def survivors_end(partition):
    outcome = partition.run(0, ["sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & sleep 1"])
    assert (outcome.returncode, outcome.survivors) == (0, 2), outcome


def check_a_partition():
    """One for all three: each starts a guard, and an emulated machine takes seconds to start Python."""
    with pin.Partition(SMALL, "cgroup") as partition:
        limits_hold(partition)
        memory_that_runs_out(partition)
        survivors_end(partition)


def check_no_room():
    tree = GroupTree("", "", "room", ["pids", "cpuset"])
    group = tree.make("full", processes=0)
    try:
        launch(["/bin/true"], [], group)
    except errors.LaunchError as error:
        said = str(error)
    else:
        said = "it started"
    group.kill()
    group.remove()
    tree.close()
    assert "Resource temporarily unavailable" in said, said


def check_cpus_that_are_not_there():
    tree = GroupTree("", "", "absent", ["cpuset"])
    for cpus in ("99", "0,99"):
        try:
            tree.make("x", cpus=cpus)
        except (errors.LimitRejected, errors.CpusetNotEffective):
            continue
        raise AssertionError(f"{cpus} was taken")
    tree.close()


def check_cpus_of_their_own():
    tree = GroupTree("", "", "own", ["cpuset"])
    try:
        tree.make("x", cpus="4-7", exclusive=True)
    except errors.PartitionInvalid as error:
        said = error.value
    else:
        said = "a partition below none"
    tree.close()
    assert "invalid" in said, said  # the group above is no partition


def check_a_delegated_group_is_taken_over_and_given_back():
    group = ROOT / "delegated"
    group.mkdir()
    (ROOT / "cgroup.subtree_control").write_text("+cpuset +memory +pids")
    (group / "cgroup.procs").write_text("0")
    with pin.Partition(SMALL, "cgroup") as partition:
        assert Path("/proc/self/cgroup").read_text().strip().endswith("-supervisor")
        assert partition.run(0, ["true"]).verified["in_group"]
        with pin.Partition(SMALL, "cgroup") as inner:
            assert inner.run(0, ["true"]).ok
    assert Path("/proc/self/cgroup").read_text().strip() == "0::/delegated"
    assert (group / "cgroup.subtree_control").read_text().strip() == ""
    stranger = subprocess.Popen(["sleep", "1000"])
    (group / "cgroup.procs").write_text(str(stranger.pid))
    with pin.Partition(SMALL, "cgroup") as partition:  # a child is none: it moves along
        assert partition.level == "cgroup"
    stranger.kill()
    stranger.wait()
    (ROOT / "cgroup.procs").write_text("0")
    group.rmdir()


def check_this_process_is_confined():
    with pin.scope((1, 2), backend="cgroup") as pinned:
        assert pinned.level == "cgroup", pinned.reasons
        assert os.sched_getaffinity(0) == {4, 5, 6, 7}
    assert len(os.sched_getaffinity(0)) == 8
    assert Path("/proc/self/cgroup").read_text().strip() == "0::/"


def check_nothing_outlives_a_killed_supervisor():
    code = (
        "import time; from dnnsuite import pin\n"
        "p = pin.Partition(pin.make_plan(pin.Topology.read(), 2, reserve_memory='50%'), 'cgroup')\n"
        "p.start(0, ['sh', '-c', 'setsid sleep 1000 & wait'])\n"
        "print(p.name, flush=True); time.sleep(1000)"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    name = supervisor.stdout.readline().strip()
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    deadline = time.monotonic() + 60
    while (of_run(name) or pin.find()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert of_run(name) == []
    assert pin.find() == [], pin.find()


def check_without_privilege():
    child = os.fork()
    if child == 0:
        os.setgid(1000)
        os.setuid(1000)
        try:
            GroupTree("", "", "mine", ["cpuset", "memory"])
        except errors.CgroupPermissionDenied as error:
            os._exit(0 if "systemd-run" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def main():
    failed = 0
    for name, check in list(globals().items()):
        if not name.startswith("check_"):
            continue
        try:
            check()
            left = [path.name for path in ROOT.iterdir() if path.is_dir()]
            assert not left, f"groups are left: {left}"
            print(f"passed {name}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    print(f"checks failed: {failed}", flush=True)


main()
