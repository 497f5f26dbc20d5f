# SPDX-License-Identifier: MIT
"""Shares of the machine for the copies of a job, and the seed of each."""

from __future__ import annotations

from dataclasses import replace

from ..errors import InvalidArgument
from ..pin import Plan, Slot, Topology, make_plan
from .entry import SuiteEntry

_USERS_WITHOUT_A_GPU = 2  # into as many shares the original cuts the CPUs of a machine without one


def plan_of(copies: str, device: str, topology: Topology) -> Plan:
    """One share per copy.

    Args:
        copies: `per-gpu`, a number, or `all` for one copy that has the whole machine. Without a GPU, `per-gpu` is
            two copies where there are two cores.

    Raises:
        InvalidArgument: `copies` is none of these.
        PinError: the machine cannot be divided so.
    """
    if device == "cpu":
        topology = replace(topology, gpus=())
    if copies == "all":
        return make_plan(topology, 1)
    if copies == "per-gpu":
        whole = make_plan(topology, 1)
        return make_plan(topology, "gpus" if topology.gpus else min(_USERS_WITHOUT_A_GPU, whole.all.cores))
    if not copies.isdecimal() or int(copies) < 1:
        raise InvalidArgument(f"--copies {copies}: expected per-gpu, all, or a number of at least 1")
    return make_plan(topology, int(copies), allow_smt_split=True)


def seed_of(run: int, copy: int | None, copies: int) -> int:
    """Return a seed by the original's rule: copy i of run r has r + 100 (i + 1), a job that has the machine r + the
    number of copies."""
    return run + copies if copy is None else run + 100 * (copy + 1)


def threads_of(slot: Slot) -> int:
    """Return the number of threads of a share: one per core, whose hardware threads share its units."""
    return max(1, slot.cores)


def processes_of(entry: SuiteEntry, plan: Plan, slot: Slot) -> int:
    """Processes of one copy: of a distributed job one per GPU, without GPUs as many as a student job has copies."""
    if not entry.distributed:
        return 1
    return max(1, len(slot.gpus) if entry.device != "cpu" else len(plan.slots))


def uuids_of(plan: Plan, slot: Slot) -> list[str]:
    """Ids of the GPUs of a share."""
    return [plan.gpus[i].uuid or str(i) for i in slot.gpus]
