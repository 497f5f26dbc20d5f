# SPDX-License-Identifier: MIT
"""Roofline of a profile, under peaks of the CPUs that were measured before (`dnnsuite roofline`)."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..errors import InvalidArgument
from ._schedule import Phase

if TYPE_CHECKING:
    from .data import ProfileData
    from .roofline import Roofline


def flops_per_s(profile: ProfileData) -> float | None:
    """Compute analytic FLOPs of the observed operators over the wall time of their steps; None if they are not
    known."""
    ops = profile.tables.get("ops")
    if ops is None or "flops" not in ops.columns or not profile.wall_ns:
        return None
    return float(ops["flops"].sum()) * 1e9 / profile.wall_ns


def under_the_roofs(profile: ProfileData) -> Roofline | None:
    """Place the operators under peaks measured before; None without operators or without peaks.

    Peaks are not measured here: that takes seconds of a quiet machine, and is the work of `dnnsuite roofline`.
    """
    ops = profile.tables.get("ops")
    if ops is None or "counted" not in ops.columns:
        return None
    from .roofline import Roofline
    from .roofline.peaks import known_peaks

    peaks = known_peaks(threads_in_use())
    if peaks is None:
        return None
    steps = profile.tables["steps"]
    steps = steps[steps["phase"] == Phase.ACTIVE.value]
    try:
        return Roofline(peaks, ops, steps.assign(cpu_ns=steps["process_cpu_ns"]))
    except InvalidArgument:  # nothing of known size ran
        return None


def threads_in_use() -> int:
    allowed = len(os.sched_getaffinity(0))
    torch = sys.modules.get("torch")
    return min(allowed, torch.get_num_threads()) if torch is not None else allowed
