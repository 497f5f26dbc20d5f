# SPDX-License-Identifier: MIT
"""Instruments of training on CPUs: counters of the kernel, the machine's load, torch's operators.

Where there is no PMU, as in most virtual machines, FLOPs are analytic: computed from the operators' shapes, not
counted.
"""

from ._classes import class_of
from ._observe import ObservedSteps, observe_steps
from ._ops import OpsInstrument
from ._system import SystemReader
from ._usage import CpuInstrument

__all__ = ["CpuInstrument", "ObservedSteps", "OpsInstrument", "SystemReader", "class_of", "observe_steps"]
