# SPDX-License-Identifier: MIT
"""Measure how many models a device can train at once, and how fast, for each way of sharing it.

`Report` and `Settings` are shorter names of :class:`WorkflowReport` and :class:`WorkflowSettings`. Names are imported
when they are first used, so that a command loads only what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .modes import MODES, Mode
    from .phases import WorkflowReport
    from .plan import NothingFits, expovariate_plan, find_max_B
    from .settings import WorkflowSettings
    from .sweep import run

    Report, Settings = WorkflowReport, WorkflowSettings

__all__ = [
    "MODES", "Mode", "NothingFits", "Report", "Settings", "WorkflowReport", "WorkflowSettings", "expovariate_plan",
    "find_max_B", "run",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        ".modes": "MODES Mode",
        ".phases": "WorkflowReport Report=WorkflowReport",
        ".plan": "NothingFits expovariate_plan find_max_B",
        ".settings": "WorkflowSettings Settings=WorkflowSettings",
        ".sweep": "run",
    },
)
