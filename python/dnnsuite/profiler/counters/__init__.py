# SPDX-License-Identifier: MIT
"""Hardware counters of GPUs: names and passes of every chip (needs no GPU), counters over steps and kernels, and over
time.

Names are resolved when first used, so that importing this opens no library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import lazy

if TYPE_CHECKING:
    from ._support import Feature, support
    from .catalogue import Metric, chips, metrics
    from .gpu_counters import CountersInstrument
    from .planner import CounterPlan, Group, Plan, plan
    from .presets import PRESETS, Selection, select
    from .roles import CORES, ROLES, Role, overlaps, resolve
    from .sampling import PmSamplingInstrument
    from .utilization import core_utilization, format_core_utilization, step_utilization
    from .validation import validate

__all__ = [
    "CORES", "PRESETS", "ROLES", "CounterPlan", "CountersInstrument", "Feature", "Group", "Metric", "Plan",
    "PmSamplingInstrument", "Role", "Selection", "chips", "core_utilization", "format_core_utilization", "metrics",
    "overlaps", "plan", "resolve", "select", "step_utilization", "support", "validate",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        "._support": "Feature support",
        ".catalogue": "Metric chips metrics",
        ".gpu_counters": "CountersInstrument",
        ".planner": "CounterPlan Group Plan plan",
        ".presets": "PRESETS Selection select",
        ".roles": "CORES ROLES Role overlaps resolve",
        ".sampling": "PmSamplingInstrument",
        ".utilization": "core_utilization format_core_utilization step_utilization",
        ".validation": "validate",
    },
)
