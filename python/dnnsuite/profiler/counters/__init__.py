# SPDX-License-Identifier: MIT
"""Hardware counters of GPUs: names and passes of every chip (needs no GPU), counters over steps and kernels, and over
time.

Names are resolved when first used, so that importing this opens no library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

_HOME_OF = {
    "Metric": ".catalogue", "chips": ".catalogue", "metrics": ".catalogue",
    "CountersInstrument": ".gpu_counters",
    "CounterPlan": ".planner", "Group": ".planner", "Plan": ".planner", "plan": ".planner",
    "PRESETS": ".presets", "Selection": ".presets", "select": ".presets",
    "CORES": ".roles", "ROLES": ".roles", "Role": ".roles", "overlaps": ".roles", "resolve": ".roles",
    "PmSamplingInstrument": ".sampling",
    "Feature": "._support", "support": "._support",
    "validate": ".validation",
    "core_utilization": ".utilization", "format_core_utilization": ".utilization", "step_utilization": ".utilization",
}  # fmt: skip

__all__ = [
    "CORES", "PRESETS", "ROLES", "CounterPlan", "CountersInstrument", "Feature", "Group", "Metric", "Plan",
    "PmSamplingInstrument", "Role", "Selection", "chips", "core_utilization", "format_core_utilization",
    "metrics", "overlaps", "plan", "resolve", "select", "step_utilization", "support", "validate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
