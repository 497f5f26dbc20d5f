# SPDX-License-Identifier: MIT
"""Instruments of training on CPUs: counters of the kernel, the machine's load, torch's operators.

Where there is no PMU, as in most virtual machines, FLOPs are analytic: computed from the operators' shapes, not
counted.
"""

from ._classes import CLOSURE, class_of, is_compiled, nest
from ._machine import SystemReader
from ._ops import OpsInstrument
from ._usage import CpuInstrument, ObservedSteps, observe_steps

__all__ = [
    "CLOSURE", "CpuInstrument", "ObservedSteps", "OpsInstrument", "SystemReader", "class_of", "is_compiled",
    "nest", "observe_steps",
]  # fmt: skip
