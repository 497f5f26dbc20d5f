# SPDX-License-Identifier: MIT
"""Equal, isolated shares of a machine: who gets which CPUs, memory and GPU, and that it is kept to."""

from ._plan import Plan as Plan
from ._plan import Slot as Slot
from ._plan import make_plan as make_plan
from ._topology import Topology as Topology

__all__ = ["Plan", "Slot", "Topology", "make_plan"]
