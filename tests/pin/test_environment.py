# SPDX-License-Identifier: MIT
from dataclasses import replace

from dnnsuite.pin import make_plan
from dnnsuite.pin._environment import environment
from pin_machines import machine

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
