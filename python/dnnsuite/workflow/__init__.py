# SPDX-License-Identifier: MIT
"""Measure how many models a device trains at once, and how fast, for each way of sharing it.

`Report` and `Settings` are shorter names of :class:`WorkflowReport` and :class:`WorkflowSettings`. Names are resolved
when first used, so that commands which need a part of this do not import all of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .modes import MODES, Mode
    from .phases import WorkflowReport
    from .plan import NothingFits, expovariate_plan, find_max_B
    from .settings import WorkflowSettings
    from .sweep import run

    Report, Settings = WorkflowReport, WorkflowSettings

_HOME_OF = {
    "MODES": ".modes", "Mode": ".modes", "NothingFits": ".plan", "WorkflowReport": ".phases",
    "WorkflowSettings": ".settings", "expovariate_plan": ".plan", "find_max_B": ".plan", "run": ".sweep",
}  # fmt: skip
_SHORT = {"Report": "WorkflowReport", "Settings": "WorkflowSettings"}

__all__ = [
    "MODES", "Mode", "NothingFits", "Report", "Settings", "WorkflowReport", "WorkflowSettings", "expovariate_plan",
    "find_max_B", "run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    full = _SHORT.get(name, name)
    if full not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[full], __name__), full)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
