# SPDX-License-Identifier: MIT
"""The place of a process under srun, from the variables that Slurm sets."""

import pytest

from dnnsuite.cluster import adopt_step
from dnnsuite.cluster.submit import first_host
from dnnsuite.errors import InvalidArgument

STEP = {
    "SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "16", "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1", "SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_STEP_TASKS_PER_NODE": "8(x2)",
}  # fmt: skip


def test_a_task_of_srun_is_a_process_of_the_run() -> None:
    environment = dict(STEP)
    assert adopt_step(environment)
    assert {name: environment[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")} == {
        "RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8",
    }  # fmt: skip
    assert environment["MASTER_ADDR"] == "gpu07"
    others = {**STEP, "SLURM_PROCID": "3", "SLURM_LOCALID": "3"}
    adopt_step(others)
    assert others["MASTER_PORT"] == environment["MASTER_PORT"]
    assert 1024 < int(environment["MASTER_PORT"]) < 65536


def test_another_step_meets_at_another_port() -> None:
    ports = set()
    for number in range(4):
        environment = {**STEP, "SLURM_STEP_ID": str(number)}
        adopt_step(environment)
        ports.add(environment["MASTER_PORT"])
    assert len(ports) == 4


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {**STEP, "WORLD_SIZE": "2", "RANK": "1"},  # torchrun under srun
        {**STEP, "SLURM_STEP_NUM_TASKS": "1"},  # srun --pty bash
        {name: value for name, value in STEP.items() if "STEP" not in name},  # the script of sbatch
    ],
)
def test_everything_else_is_left_as_it_is(environment: dict[str, str]) -> None:
    before = dict(environment)
    assert not adopt_step(environment)
    assert environment == before


def test_where_to_meet_may_be_given() -> None:
    environment = {**STEP, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "5"}
    adopt_step(environment)
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("10.0.0.1", "5")


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("n1", "n1"),
        ("n[01-04,7],m3", "n01"),
        ("a,b[1-2]", "a"),
        ("n[5,7-9]", "n5"),
        ("rack[1-2]-gpu[3-4]", "rack1-gpu3"),
    ],
)
def test_the_first_host_of_a_list(nodes: str, host: str) -> None:
    assert first_host(nodes) == host


def test_what_is_missing_is_named() -> None:
    without = {name: value for name, value in STEP.items() if name != "SLURM_PROCID"}
    with pytest.raises(InvalidArgument, match="SLURM_STEP_ID is set, but SLURM_PROCID is not"):
        adopt_step(without)
    with pytest.raises(InvalidArgument, match="SLURM_PROCID='x' is not a number"):
        adopt_step({**STEP, "SLURM_PROCID": "x"})
    with pytest.raises(InvalidArgument, match="names no node"):
        adopt_step({**STEP, "SLURM_STEP_NODELIST": ""})
