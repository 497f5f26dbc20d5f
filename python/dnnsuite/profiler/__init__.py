# SPDX-License-Identifier: MIT
"""Profiles of training runs: instruments over windows of steps, and tables of time and hardware use.

Names are resolved when first used, so that importing this imports no instrument.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import activity, counters, cpu, flops, memory, nvml, nvtx, roofline, trace, window
    from ._profile import Profile, profile
    from ._schedule import Schedule, schedule
    from ._spans import SpansInstrument
    from .instrument import Instrument, define, definitions

_HOME_OF = {
    "Instrument": ".instrument",
    "define": ".instrument",
    "definitions": ".instrument",
    "Profile": "._profile",
    "profile": "._profile",
    "Schedule": "._schedule",
    "SpansInstrument": "._spans",
    "schedule": "._schedule",
}
_MODULES = ("activity", "counters", "cpu", "flops", "memory", "nvml", "nvtx", "roofline", "trace", "window")

__all__ = [
    "Instrument", "Profile", "Schedule", "SpansInstrument", "activity", "counters", "cpu", "define", "definitions",
    "flops", "memory", "nvml", "nvtx", "profile", "roofline", "schedule", "trace", "window",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name], __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
