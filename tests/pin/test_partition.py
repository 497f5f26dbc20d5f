# SPDX-License-Identifier: MIT
"""Commands in real shares: by control groups where this user may make them, by affinity everywhere."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.pin import Partition, Topology, find, make_plan
from dnnsuite.pin.errors import CgroupError, LaunchError, PinningTooWeak
from pin_machines import machine
from waiting import wait_for

PARENT = f"/dnnsuite-ci-{os.getpid()}"
LIMIT = 64 << 20


def shares():
    """Two small shares of this machine (two threads of one core where it has but one)."""
    plan = make_plan(Topology.read(), min(2, len(os.sched_getaffinity(0))), allow_smt_split=True)
    return replace(plan, slots=tuple(replace(slot, memory_bytes=LIMIT) for slot in plan.slots))


@pytest.fixture(params=["cgroup", "affinity", "none"])
def partition(request):
    try:
        made = Partition(shares(), request.param, parent=PARENT)
    except CgroupError as error:
        pytest.skip(f"needs root and writable control groups: {error}")
    with made:
        yield made
    assert not [left for left in find() if left.owner == os.getpid()]


def test_a_command_runs_in_its_share(partition: Partition, tmp_path: Path) -> None:
    with open(tmp_path / "out", "w") as out:
        outcome = partition.run(
            0,
            ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; echo $DNNSUITE_SLOT $OMP_NUM_THREADS; exit 3"],
            files=(-1, out.fileno(), -1),
        )
    cpus, variables = (tmp_path / "out").read_text().splitlines()
    slot = partition.plan.slots[0]
    assert variables == f"student0 {os.environ.get('OMP_NUM_THREADS', slot.cores)}"
    assert partition.level == "none" or cpus.split()[1] == slot.cpus
    assert (outcome.returncode, outcome.ok, outcome.survivors, outcome.level) == (3, False, 0, partition.level)


def test_memory_that_runs_out_is_told_from_other_deaths(partition: Partition) -> None:
    if partition.level == "none":
        pytest.skip("nothing limits memory")
    outcome = partition.run(0, [sys.executable, "-c", "b = bytearray(200 << 20)"])
    killed = partition.run(0, ["sh", "-c", "kill -9 $$"])
    assert killed.returncode == -signal.SIGKILL
    assert not killed.oom_killed
    assert not outcome.ok
    if partition.level == "cgroup":
        assert (outcome.returncode, outcome.oom_killed) == (-signal.SIGKILL, True)
        assert outcome.memory_peak_bytes is not None
        assert outcome.memory_peak_bytes <= LIMIT
        child = partition.run(0, ["sh", "-c", f"{sys.executable} -c 'b = bytearray(200 << 20)'; exit 0"])
        assert child.oom_killed  # whatever the leader says
    else:
        assert outcome.returncode == 1  # a MemoryError: the limit is one of each process


def test_what_is_left_behind_is_ended(partition: Partition) -> None:
    outcome = partition.run(0, ["sh", "-c", "for i in 1 2 3; do setsid sleep 1000 & done; sleep 0.2"])
    assert (outcome.returncode, outcome.survivors) == (0, 3)


def test_a_timeout_ends_everything(partition: Partition) -> None:
    outcome = partition.run(0, ["sh", "-c", "sleep 1000 & sleep 1000"], timeout_s=0.2)
    assert outcome.timed_out
    assert outcome.returncode == -signal.SIGKILL


def test_every_share_at_once(partition: Partition) -> None:
    started = [partition.start(i, ["sh", "-c", f"exit {slot.name[-1]}"]) for i, slot in enumerate(partition.plan.slots)]
    outcomes = partition.finish(started)
    assert [outcome.returncode for outcome in outcomes] == list(range(len(partition.plan.slots)))


def test_failures_to_start(partition: Partition) -> None:
    with pytest.raises(LaunchError, match="execute nonesuch-program: No such file"):
        partition.run(0, ["nonesuch-program"])
    with pytest.raises(LaunchError, match="change to the folder /nowhere"):
        partition.run(0, ["true"], cwd="/nowhere")
    with pytest.raises(InvalidArgument, match="no share 99"):
        partition.run(99, ["true"])
    assert partition.run("all", ["true"]).ok


def groups() -> Partition:
    try:
        return Partition(shares(), "cgroup", parent=PARENT)
    except CgroupError as error:
        pytest.skip(f"needs root and writable control groups: {error}")


def test_limits_are_read_back_and_the_process_is_inside() -> None:
    with groups() as partition:
        running = partition.start(0, ["sleep", "1000"])
        assert running.verified["affinity"]
        assert running.verified["in_group"]
        assert running.verified["method"] in ("clone_into_cgroup", "attach_before_exec")
        found = {limit["file"]: limit["found"] for limit in running.verified["limits"]}
        assert str(LIMIT) in found.values()
        assert partition.record()["level"] == "cgroup"
        running.kill()
        assert running.finish().returncode == -signal.SIGKILL


def test_a_fork_storm_ends() -> None:
    storm = "import os, time\nwhile True:\n try: os.fork()\n except OSError: time.sleep(0.01)"
    with groups() as partition:
        tree = partition._tree
        group = tree.make("storm", cpus=partition.plan.slots[0].cpus, mems="0", processes=50, memory_bytes=256 << 20)
        from dnnsuite._C import launch

        process = launch([sys.executable, "-c", storm], ["PATH=/usr/bin"], group)
        wait_for(lambda: group.counters()["forks_refused"])
        assert len(group.processes()) == 50
        assert group.kill() == []
        assert process.wait(280)["signal"] == signal.SIGKILL
        assert group.counters()["forks_refused"] > 0
        group.remove()


def test_a_group_without_room_is_said() -> None:
    with groups() as partition:
        group = partition._tree.make("full", processes=0, cpus=partition.plan.slots[0].cpus, mems="0")
        from dnnsuite._C import launch

        # Version 1 lets a process in over the maximum and refuses its forks; version 2 refuses it.
        if any(f["version"] == 2 and "pids" in f["controllers"] for f in partition._tree.folders):
            with pytest.raises(LaunchError):
                launch(["/bin/true"], [], group)
        else:
            assert launch(["/bin/sh", "-c", "/bin/true & wait $!"], [], group).wait(280)["code"] != 0
        group.remove()


def test_limits_that_the_kernel_refuses() -> None:
    with groups() as partition, pytest.raises(CgroupError) as caught:
        partition._tree.make("bad", cpus="60000")
    assert type(caught.value).__name__ in ("LimitRejected", "CpusetNotEffective")
    assert caught.value.value == "60000"


CHILD = """
import os, sys, time
from dnnsuite import pin
plan = pin.make_plan(pin.Topology.read(), 1, allow_smt_split=True)
partition = pin.Partition(plan, sys.argv[1], parent=sys.argv[2])
running = partition.start(0, ["sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & wait"])
print(partition.name, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("backend", ["cgroup", "affinity"])
def test_nothing_outlives_a_killed_supervisor(backend: str) -> None:
    if backend == "cgroup":
        groups().close()
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, backend, PARENT], stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        name = supervisor.stdout.readline().strip()
        from dnnsuite.pin._groups import of_run

        wait_for(lambda: len(of_run(name)) == 3)
        supervisor.kill()
    wait_for(lambda: not of_run(name) and not [left for left in find() if left.name == name])
    for mount in Path("/sys/fs/cgroup").glob(f"*{PARENT}"):
        mount.rmdir()  # the parent that was given is not the run's own


def test_another_users_groups() -> None:
    """Without privilege the ladder ends at affinity, and says why."""
    if os.getuid() != 0:
        pytest.skip("run as root, to become another user")
    # Everything is imported before: the interpreter may be readable for root alone.
    code = (
        "import os\n"
        "from dnnsuite import pin\n"
        "from dnnsuite.pin import _partition, errors\n"
        "plan = pin.make_plan(pin.Topology.read(), 1, allow_smt_split=True)\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "class NoGuard:\n"
        "  def __init__(self, name): pass\n"
        "  def release(self): pass\n"
        "_partition.Guard = NoGuard\n"
        "with pin.Partition(plan) as p:\n"
        "  print(p.level, '|', '; '.join(p.reasons), '|', p.run(0, ['/bin/true']).returncode)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    level, reasons, status = done.stdout.split("|")
    assert (level.strip(), status.strip()) == ("affinity", "0"), done.stderr
    assert "systemd-run --user --scope -p Delegate=yes" in reasons


def test_read_only_control_groups() -> None:
    """As containers have them: the ladder ends at affinity, and the way out is named."""
    script = (
        "for m in $(grep -oE ' /sys/fs/cgroup[^ ]*' /proc/self/mountinfo); do mount -o remount,ro,bind $m; done; "
        f"{sys.executable} -c 'from dnnsuite import pin\n"
        "with pin.Partition(pin.make_plan(pin.Topology.read(), 1, allow_smt_split=True)) as p:\n"
        " print(p.level, p.reasons)'"
    )
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True)
    if "Operation not permitted" in done.stderr or os.getuid() != 0:
        pytest.skip("needs root with mount namespaces")
    assert done.stdout.startswith("affinity"), done.stderr
    assert "unmask=/sys/fs/cgroup" in done.stdout


def test_the_ladder_is_an_error_when_it_is_not_to_be_gone_down() -> None:
    with pytest.raises(PinningTooWeak, match="cgroup is required, and this machine grants affinity"):
        Partition(shares(), "affinity", require="cgroup")
    with pytest.raises(InvalidArgument, match="backend 'x'; accepted: auto, cgroup, affinity, none"):
        Partition(shares(), "x")
    with pytest.raises(InvalidArgument, match="require 'x'; accepted"):
        Partition(shares(), require="x")
    with pytest.raises(PinningTooWeak, match="CPUs that this process may not use"):
        Partition(make_plan(machine(nodes=8, cores=128), 8), "affinity")


def test_a_closed_partition_runs_nothing() -> None:
    partition = Partition(shares(), "none")
    partition.close()
    partition.close()
    with pytest.raises(Error, match="closed"):
        partition.run(0, ["true"])


def test_an_error_in_the_block_is_what_comes_out() -> None:
    def body() -> None:
        with Partition(shares(), "none") as partition:
            partition.start(0, ["sleep", "1000"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
