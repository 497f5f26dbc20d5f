# SPDX-License-Identifier: MIT
"""Measure how many models a device trains at once, and how fast, for each way of sharing it.

`Report` and `Settings` are shorter names of :class:`WorkflowReport` and :class:`WorkflowSettings`.
"""

from .modes import MODES as MODES
from .modes import Mode as Mode
from .phases import WorkflowReport as WorkflowReport
from .plan import NothingFits as NothingFits
from .plan import expovariate_plan as expovariate_plan
from .plan import find_max_B as find_max_B
from .plan import interleave as interleave
from .settings import WorkflowSettings as WorkflowSettings
from .sweep import run as run

Report, Settings = WorkflowReport, WorkflowSettings

__all__ = [
    "MODES", "Mode", "NothingFits", "Report", "Settings", "WorkflowReport", "WorkflowSettings", "expovariate_plan",
    "find_max_B", "interleave", "run",
]  # fmt: skip
