# SPDX-License-Identifier: MIT
"""A profile under the roofs of the machine's CPUs, where they have been measured before (`dnnsuite roofline`)."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..errors import InvalidArgument
from ._schedule import Phase

if TYPE_CHECKING:
    from ._profile import Profile
    from .roofline import Roofline

__all__ = ["flops_per_s", "under_the_roofs"]


def flops_per_s(profile: Profile) -> float | None:
    """Analytic FLOPs of the observed operators over the wall time of their steps; None where they are not known."""
    ops = profile.tables.get("ops")
    wall_ns = sum(step.t1_ns - step.t0_ns for step in profile.active)
    if ops is None or "flops" not in ops.columns or not wall_ns:
        return None
    return float(ops["flops"].sum()) * 1e9 / wall_ns


def under_the_roofs(profile: Profile) -> Roofline | None:
    """The operators against the measured peaks; None without operators, or where peaks were never measured: that takes
    seconds of a quiet machine, and is `dnnsuite roofline`'s to do.
    """
    ops = profile.tables.get("ops")
    if ops is None or "counted" not in ops.columns:
        return None
    from .roofline import Roofline
    from .roofline._peaks import _load, _path, machine_key

    machine = machine_key(_threads())
    peaks = _load(_path(machine), machine)
    if peaks is None:
        return None
    steps = profile.steps[profile.steps["phase"] == Phase.ACTIVE.value]
    try:
        return Roofline(peaks, ops, steps.assign(cpu_ns=steps["process_cpu_ns"]))
    except InvalidArgument:  # nothing of known size ran
        return None


def _threads() -> int:
    allowed = len(os.sched_getaffinity(0))
    torch = sys.modules.get("torch")
    return min(allowed, torch.get_num_threads()) if torch is not None else allowed
