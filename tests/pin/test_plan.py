# SPDX-License-Identifier: MIT

import json
import mmap
from dataclasses import replace

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.pin import Plan, make_plan
from dnnsuite.pin.errors import NotEnoughCpus, NotEnoughMemory, SmtSplit
from dnnsuite.pin.plan import environment, reserve_bytes
from pin_machines import GB, machine

INTEL = machine(nodes=2, cores=28, smt=2, gpu_nodes=(0, 0, 0, 0, 1, 1, 1, 1))
EPYC = machine(nodes=8, cores=16, smt=2, l3_cores=4, gpu_nodes=(3, 3, 1, 1, 7, 7, 5, 5), per_package=4)


def test_two_sockets_and_eight_gpus() -> None:
    plan = make_plan(INTEL)
    assert [slot.cpus for slot in plan.slots[:2]] == ["0-6,56-62", "7-13,63-69"]
    assert [slot.mems for slot in plan.slots] == ["0"] * 4 + ["1"] * 4
    assert {(slot.cores, slot.threads, slot.crosses_numa) for slot in plan.slots} == {(7, 14, False)}
    assert [slot.gpus for slot in plan.slots] == [(i,) for i in range(8)]
    assert plan.comparable
    assert plan.unused_cpus == ""
    assert plan.all.cpus == "0-111"
    assert plan.all.memory_bytes == 8 * plan.slots[0].memory_bytes


def test_gpus_on_half_of_the_nodes() -> None:
    strict, auto = make_plan(EPYC, locality="strict"), make_plan(EPYC)
    assert {(slot.cores, slot.crosses_numa) for slot in strict.slots} == {(8, False)}
    assert len(strict.unused_cpus.split(",")) > 1
    assert {slot.cores for slot in auto.slots} == {16}
    assert {slot.crosses_numa for slot in auto.slots} == {True}
    package = {cpu.cpu: cpu.package for cpu in EPYC.cpus}
    for slot in auto.slots:
        assert len({package[cpu] for cpu in _cpus(slot.cpus)}) == 1


def _cpus(text: str) -> list[int]:
    from dnnsuite._C import parse_cpu_list

    return parse_cpu_list(text)


def test_shares_that_differ_are_not_comparable() -> None:
    plan = make_plan(machine(nodes=2, cores=6), 3)
    assert not plan.comparable
    assert "cross NUMA nodes" in plan.reasons[0]
    plan = make_plan(machine(cores=8, gpu_nodes=(0, 0)), 3)
    assert plan.reasons == ("3 shares on 2 GPUs: some GPUs are shared by more",)
    assert [slot.gpus for slot in plan.slots] == [(0,), (1,), (0,)]


def test_an_odd_number_of_gpus() -> None:
    plan = make_plan(machine(nodes=2, cores=16, gpu_nodes=(0, 0, 0, 1, 1, 1)))
    assert {slot.cores for slot in plan.slots} == {5}
    assert plan.unused_cpus == "15,31"
    assert plan.comparable


def test_splitting_cores_has_to_be_asked_for() -> None:
    topology = machine(cores=4, smt=2)
    with pytest.raises(SmtSplit, match="or give --allow-smt-split"):
        make_plan(topology, 8)
    plan = make_plan(topology, 8, allow_smt_split=True)
    assert sorted(slot.cpus for slot in plan.slots) == [str(i) for i in range(8)]
    assert plan.reasons == ("shares have threads of the same cores",)
    assert make_plan(topology, 4, allow_smt_split=True) == make_plan(topology, 4)
    with pytest.raises(NotEnoughCpus, match="9 shares"):
        make_plan(topology, 9, allow_smt_split=True)


def test_memory_leaves_a_reserve_and_is_whole_pages() -> None:
    plan = make_plan(machine(cores=4, memory_bytes=64 * GB), 3)
    assert plan.reserve_bytes == 64 * GB // 20
    share = plan.slots[0].memory_bytes
    assert share % mmap.PAGESIZE == 0
    assert 0 <= 64 * GB - plan.reserve_bytes - 3 * share < 3 * mmap.PAGESIZE
    assert make_plan(machine(), 4, reserve_memory="0").slots[0].memory_bytes == 16 * GB
    with pytest.raises(NotEnoughMemory, match="lower --reserve-memory"):
        make_plan(machine(memory_bytes=GB), 2, reserve_memory="1G")


def test_memory_of_a_node_too_small_is_not_insisted_on() -> None:
    lopsided = machine(nodes=2, cores=4)
    lopsided = replace(lopsided, nodes=(replace(lopsided.nodes[0], memory_bytes=GB), lopsided.nodes[1]))
    plan = make_plan(lopsided, 2)
    assert [slot.mems for slot in plan.slots] == ["0-1", "1"]
    assert not plan.comparable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auto", 64 * GB // 20),
        ("5%", 64 * GB // 20),
        ("4G", 4 * GB),
        ("512MiB", 512 << 20),
        (1000, 1000),
        ("0", 0),
        ("1.5g", 3 * GB // 2),
        ("2TB", 2048 * GB),
    ],
)
def test_reserves(text: str | int, expected: int) -> None:
    assert reserve_bytes(text, 64 * GB) == expected
    assert reserve_bytes("auto", GB) == 512 << 20


@pytest.mark.parametrize("text", ["-1", "x", "5 percent", "nan", "inf", "", "G", "1X"])
def test_reserves_that_are_none(text: str) -> None:
    with pytest.raises(InvalidArgument, match="accepted: auto, 5%"):
        reserve_bytes(text, GB)


@pytest.mark.parametrize("slots", [0, -1, "many", "1.5"])
def test_numbers_that_are_none(slots: int | str) -> None:
    with pytest.raises(InvalidArgument, match="accepted: gpus, or a number from 1"):
        make_plan(INTEL, slots)


def test_a_plan_is_deterministic_and_survives_json() -> None:
    plan = make_plan(INTEL)
    again = Plan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan == make_plan(type(INTEL).from_dict(json.loads(json.dumps(INTEL.to_dict()))))
    assert again.hash == plan.hash == "22d1d494d60162a5"
    assert make_plan(INTEL, smt="off").hash != plan.hash
    edited = plan.to_dict()
    edited["slots"][0]["cpus"] = "0-55"
    with pytest.raises(InvalidArgument, match="was it edited"):
        Plan.from_dict(edited)
    with pytest.raises(InvalidArgument, match="no plan: KeyError"):
        Plan.from_dict({})


def test_slots_by_number_and_name() -> None:
    plan = make_plan(INTEL)
    assert plan.slot(3) == plan.slot("student3") == plan.slots[3]
    assert plan.slot("all") == plan.all
    with pytest.raises(InvalidArgument, match="no share 8; there are 0 to 7 and 'all'"):
        plan.slot(8)


def test_without_a_gpu_the_machine_is_one_share() -> None:
    (slot,) = make_plan(machine(cores=4)).slots
    assert (slot.cpus, slot.gpus, slot.l3_count) == ("0-3", (), 1)


PLAN = make_plan(machine(cores=8, smt=2, gpu_nodes=(0, 0)))


def test_threads_slot_and_gpu() -> None:
    found, kept = environment(PLAN, PLAN.slots[1], {"PATH": "/bin"}, "run")
    assert found == {
        "PATH": "/bin",
        "OMP_NUM_THREADS": "4",
        "MKL_NUM_THREADS": "4",
        "OPENBLAS_NUM_THREADS": "4",
        "NUMEXPR_NUM_THREADS": "4",
        "DNNSUITE_SLOT": "student1",
        "JOB_ID": "1",
        "CPU_COUNT": "8",
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "DNNSUITE_PIN_RUN": "run/student1",
    }
    assert kept == {}


def test_a_users_own_value_wins_and_is_told() -> None:
    found, kept = environment(PLAN, PLAN.slots[0], {"OMP_NUM_THREADS": "1", "DNNSUITE_SLOT": "outer"})
    assert (found["OMP_NUM_THREADS"], found["DNNSUITE_SLOT"]) == ("1", "student0")
    assert kept == {"OMP_NUM_THREADS": "1"}


def test_a_selection_of_gpus_is_kept_to() -> None:
    found, _ = environment(PLAN, PLAN.slots[1], {"CUDA_VISIBLE_DEVICES": "4, 6"})
    assert found["CUDA_VISIBLE_DEVICES"] == "6"
    assert environment(PLAN, PLAN.all, {})[0]["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"


def test_without_a_driver_and_other_vendors() -> None:
    plain = replace(PLAN, gpus=tuple(replace(gpu, uuid="") for gpu in PLAN.gpus))
    assert environment(plain, plain.slots[1], {})[0]["CUDA_VISIBLE_DEVICES"] == "1"
    amd = replace(PLAN, gpus=tuple(replace(gpu, uuid="", vendor="amd") for gpu in PLAN.gpus))
    found, _ = environment(amd, amd.slots[1], {})
    assert (found["HIP_VISIBLE_DEVICES"], found["ROCR_VISIBLE_DEVICES"]) == ("1", "1")
    assert "CUDA_VISIBLE_DEVICES" not in environment(make_plan(machine(), 1), make_plan(machine(), 1).slots[0], {})[0]
