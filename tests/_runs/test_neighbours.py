# SPDX-License-Identifier: MIT
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dnnsuite._runs.monitor import Cores, Watch, all_cores, cpu_tree_s, free_cores
from waiting import wait_for

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
CPUS = sorted(os.sched_getaffinity(0))


def write_stat(root: Path, busy_ticks: dict[int, int]) -> None:
    (root / "proc").mkdir(exist_ok=True)
    lines = ["cpu  1 2 3 4 5 6 7 8 9 10"]
    lines += [f"cpu{cpu} {ticks} 0 0 99999 7 0 0 0 55 0" for cpu, ticks in busy_ticks.items()]
    (root / "proc/stat").write_text("\n".join([*lines, "intr 1 2", ""]))


def test_others_are_what_the_cpus_were_busy_beyond_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch((0, 1), tmp_path)
    write_stat(tmp_path, {0: 100, 1: 200, 2: 300})
    clock = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    before = watch.read()._replace(t_s=90.0)
    write_stat(tmp_path, {0: 500, 1: 900, 2: 9999})  # the third is not ours to look at
    others_s, there_s = watch.others_s(before, own_s=4.0)
    assert others_s == pytest.approx(1100 * TICK_S - 4.0)
    assert there_s == 20.0
    assert watch.disturbed(before, own_s=4.0) == "other processes used 0.7 of 2 cores"
    assert watch.disturbed(before, own_s=11.0) == ""


def test_a_system_that_does_not_tell_disturbs_nothing(tmp_path: Path) -> None:
    watch = Watch((0,), tmp_path)
    assert watch.disturbed(watch.read(), 0.0) == ""


@pytest.mark.parametrize(("busy", "free"), [(0.0, len(CPUS)), (1.0, max(1, len(CPUS) - 1)), (float(len(CPUS)), 1)])
def test_cores_that_neighbours_leave_free(
    busy: float, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbours keep the first CPUs busy while it is looked."""
    write_stat(tmp_path, dict.fromkeys(CPUS, 0))
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def look(seconds: float) -> None:
        clock[0] += seconds
        ticks = seconds / TICK_S
        write_stat(tmp_path, {cpu: round(ticks * min(1.0, max(0.0, busy - i))) for i, cpu in enumerate(CPUS)})

    found = free_cores(root=tmp_path, sleep=look)
    assert len(found.cpus) == free
    if free < len(CPUS):
        assert found.shared
        assert CPUS[0] not in found.cpus or busy >= len(CPUS)
        assert str(found).startswith(f"{free} of {len(CPUS)} cores, others used")


def test_one_core_beside_neighbours_is_rated_by_cpu_time() -> None:
    assert Cores((1,), 2, 1.0).by_cpu_time
    assert not Cores((0, 1), 2, 0.0).by_cpu_time
    assert not Cores((0, 1), 4, 2.0).by_cpu_time
    assert all_cores().cpus == tuple(CPUS)


def test_children_count_as_ones_own() -> None:
    before_s = cpu_tree_s(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        wait_for(lambda: cpu_tree_s(os.getpid()) >= before_s + 0.1)
    finally:
        child.kill()
        child.wait()
