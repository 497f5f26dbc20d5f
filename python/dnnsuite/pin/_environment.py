# SPDX-License-Identifier: MIT
"""Variables of a share's processes: as many threads as CPUs, and the GPU that is theirs."""

from __future__ import annotations

from collections.abc import Mapping

from ._processes import RUN_VARIABLE
from .plan import Plan, Slot

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def environment(
    plan: Plan, slot: Slot, base: Mapping[str, str], run: str = ""
) -> tuple[dict[str, str], dict[str, str]]:
    """Add a share's variables to `base`; return it and the variables that were set already and stay.

    Threads are one per core: the siblings of a core share its units, and programs that count threads themselves read
    `CPU_COUNT`. A user's own value wins.
    """
    index = next((i for i, each in enumerate(plan.slots) if each == slot), 0)
    wanted = dict.fromkeys(THREADS, str(slot.cores))
    wanted |= {"DNNSUITE_SLOT": slot.name, "JOB_ID": str(index), "CPU_COUNT": str(slot.threads)}
    visible = _visible(plan, slot, base)
    kept = {name: base[name] for name in wanted if name in base and base[name] != wanted[name]}
    for name in ("DNNSUITE_SLOT",):
        kept.pop(name, None)  # ours; an outer run's is of no use inside
    result = {**base, **wanted, **kept, **visible}
    if run:
        result[RUN_VARIABLE] = f"{run}/{slot.name}"
    return result, kept


def _visible(plan: Plan, slot: Slot, base: Mapping[str, str]) -> dict[str, str]:
    """Return the GPUs of the share, by UUID where the driver tells it; through the user's own selection where there
    is one."""
    mine = [plan.gpus[i] for i in slot.gpus]
    if not mine:
        return {}
    name = "CUDA_VISIBLE_DEVICES" if mine[0].vendor == "nvidia" else "HIP_VISIBLE_DEVICES"
    already = [entry.strip() for entry in base.get(name, "").split(",") if entry.strip()]
    if already:  # the plan's numbers are places in what the user left visible
        chosen = [already[i % len(already)] for i in slot.gpus]
        return {name: ",".join(dict.fromkeys(chosen)), "CUDA_DEVICE_ORDER": base.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")}
    values = [gpu.uuid or str(i) for i, gpu in zip(slot.gpus, mine, strict=True)]
    if mine[0].vendor != "nvidia":
        return {"HIP_VISIBLE_DEVICES": ",".join(map(str, slot.gpus)), "ROCR_VISIBLE_DEVICES": ",".join(values)}
    return {name: ",".join(values), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
