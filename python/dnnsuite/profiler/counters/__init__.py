# SPDX-License-Identifier: MIT
"""Hardware counters of GPUs: names and passes of every chip (needs no GPU), counters over steps and kernels, and over
time.

Names are resolved when first used, so that importing this opens no library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import lazy

if TYPE_CHECKING:
    from .catalogue import Feature, Metric, chips, metrics, support
    from .gpu_counters import CountersInstrument, core_utilization, format_core_utilization, step_utilization
    from .planner import CounterPlan, Group, Plan, plan
    from .roles import CORES, PRESETS, ROLES, Role, Selection, overlaps, resolve, select, validate
    from .sampling import PmSamplingInstrument

__all__ = [
    "CORES", "PRESETS", "ROLES", "CounterPlan", "CountersInstrument", "Feature", "Group", "Metric", "Plan",
    "PmSamplingInstrument", "Role", "Selection", "chips", "core_utilization", "format_core_utilization", "metrics",
    "overlaps", "plan", "resolve", "select", "step_utilization", "support", "validate",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        ".catalogue": "Feature support Metric chips metrics",
        ".gpu_counters": "CountersInstrument core_utilization format_core_utilization step_utilization",
        ".planner": "CounterPlan Group Plan plan",
        ".roles": "CORES PRESETS ROLES Role Selection overlaps resolve select validate",
        ".sampling": "PmSamplingInstrument",
    },
)
