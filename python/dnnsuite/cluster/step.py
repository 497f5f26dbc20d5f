# SPDX-License-Identifier: MIT
"""The place of a process that `srun` started, in the variables by which torchrun tells it."""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping

from ..errors import InvalidArgument

_FIRST_PORT, _PORTS = 20000, 20000  # from which the port of a step is taken by its number
_LEAST = re.compile(r"\[(\d+)[^\]]*\]")


def adopt_step(environment: MutableMapping[str, str] | None = None) -> bool:
    """Set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT from Slurm's variables.

    Does nothing where they are set, as by torchrun, and outside a step of several tasks.

    Args:
        environment: variables to change; those of this process by default.

    Returns:
        True if they were set.

    Raises:
        InvalidArgument: a variable of Slurm's is missing or no number; the message names it.
    """
    found = os.environ if environment is None else environment
    if "WORLD_SIZE" in found or "SLURM_STEP_ID" not in found:
        return False
    size = _number(found, "SLURM_STEP_NUM_TASKS")
    if size < 2:
        return False
    nodes = found.get("SLURM_STEP_NODELIST") or found.get("SLURM_JOB_NODELIST") or ""
    job, step = _number(found, "SLURM_JOB_ID"), _number(found, "SLURM_STEP_ID")
    values = {
        "RANK": _number(found, "SLURM_PROCID"),
        "WORLD_SIZE": size,
        "LOCAL_RANK": _number(found, "SLURM_LOCALID"),
        "LOCAL_WORLD_SIZE": int(found.get("SLURM_STEP_TASKS_PER_NODE", "1").split("(")[0].split(",")[0]),
        "MASTER_ADDR": found.get("MASTER_ADDR") or first_host(nodes),
        "MASTER_PORT": found.get("MASTER_PORT") or _FIRST_PORT + (31 * job + step) % _PORTS,
    }
    found.update({name: str(value) for name, value in values.items()})
    return True


def _number(environment: MutableMapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except KeyError:
        raise InvalidArgument(f"SLURM_STEP_ID is set, but {name} is not; srun sets them all") from None
    except ValueError:
        raise InvalidArgument(f"{name}={environment[name]!r} is not a number") from None


def first_host(nodes: str) -> str:
    """Return the first host of Slurm's list of nodes: `n01` of `n[01-04,7],m3`.

    Raises:
        InvalidArgument: there is none.
    """
    host = _LEAST.sub(r"\1", nodes).split(",")[0]
    if not host or "[" in host:
        raise InvalidArgument(f"SLURM_STEP_NODELIST={nodes!r} names no node")
    return host
