# SPDX-License-Identifier: MIT
import pytest

from dnnsuite._C import parse_cpu_list
from dnnsuite.errors import InvalidArgument
from dnnsuite.suites._settings import plan_of, seed_of, threads_of, uuids_of
from pin_machines import machine


@pytest.mark.parametrize("gpus", range(1, 9))
def test_a_copy_for_each_gpu_on_cores_of_its_own(gpus: int) -> None:
    plan = plan_of("per-gpu", "cuda", machine(nodes=2, cores=16, smt=2, gpu_nodes=[g % 2 for g in range(gpus)]))
    assert [uuids_of(plan, slot) for slot in plan.slots] == [[f"GPU-{g}"] for g in range(gpus)]
    assert uuids_of(plan, plan.all) == [f"GPU-{g}" for g in range(gpus)]
    taken = [cpu for slot in plan.slots for cpu in parse_cpu_list(slot.cpus)]
    assert len(taken) == len(set(taken))
    assert len({threads_of(slot) for slot in plan.slots}) == 1
    assert plan.all.memory_bytes >= sum(slot.memory_bytes for slot in plan.slots)


def test_without_a_gpu_two_users_where_there_are_two_cores() -> None:
    assert [len(plan_of("per-gpu", "cpu", machine(cores=cores)).slots) for cores in (1, 2, 8)] == [1, 2, 2]
    assert len(plan_of("per-gpu", "cpu", machine(cores=8, gpu_nodes=(0, 0, 0))).slots) == 2
    assert uuids_of(*(lambda p: (p, p.slots[0]))(plan_of("per-gpu", "cpu", machine(gpu_nodes=(0,))))) == []


def test_copies_by_number_and_all() -> None:
    four = machine(cores=4, smt=2)
    assert len(plan_of("3", "cpu", four).slots) == 3
    whole = plan_of("all", "cpu", four)
    assert [slot.cpus for slot in whole.slots] == [whole.all.cpus]
    assert not plan_of("8", "cpu", four).comparable  # threads of one core in two shares: said, not hidden
    for wrong in ("0", "-1", "many", "1.5"):
        with pytest.raises(InvalidArgument, match="expected per-gpu, all, or a number of at least 1"):
            plan_of(wrong, "cpu", four)


def test_seeds_are_the_originals() -> None:
    """student i of run r: r + 100 (i + 1); a job that has the machine: r + the number of GPUs."""
    assert [seed_of(2, copy, 4) for copy in range(4)] == [102, 202, 302, 402]
    assert seed_of(2, None, 4) == 6
