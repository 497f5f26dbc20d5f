# SPDX-License-Identifier: MIT
"""Profiles of training runs: instruments that observe windows of steps, and tables of time and hardware use.

Names are imported when they are first used, so that importing this package imports no instrument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from . import activity, counters, cpu, flops, memory, nvml, nvtx, roofline, trace, window
    from ._profile import Profile, profile
    from ._windows import Schedule, schedule
    from .instrument import Instrument, define, definitions
    from .phases import SpansInstrument

__all__ = [
    "Instrument", "Profile", "Schedule", "SpansInstrument", "activity", "counters", "cpu", "define", "definitions",
    "flops", "memory", "nvml", "nvtx", "profile", "roofline", "schedule", "trace", "window",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        ".instrument": "Instrument define definitions",
        "._profile": "Profile profile",
        "._windows": "Schedule schedule",
        ".phases": "SpansInstrument",
    },
    ("activity", "counters", "cpu", "flops", "memory", "nvml", "nvtx", "roofline", "trace", "window"),
)
