# SPDX-License-Identifier: MIT
"""Measure how many models a device trains at once, and how fast, for each way of sharing it."""

from .modes import MODES as MODES
from .modes import Mode as Mode
from .phases import Report as Report
from .plan import NothingFits as NothingFits
from .plan import expovariate_plan as expovariate_plan
from .plan import find_max_B as find_max_B
from .plan import interleave as interleave
from .sweep import run as run

__all__ = ["MODES", "Mode", "NothingFits", "Report", "expovariate_plan", "find_max_B", "interleave", "run"]
