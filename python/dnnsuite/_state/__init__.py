# SPDX-License-Identifier: MIT
"""What Python code can see in values: one walk, one snapshot to compare, and reasons for what has none."""

from .kinds import look_at_module, register
from .walk import PLAIN, Path, Put, Same, Unknown, Walk, hides_state, slots_of

__all__ = [
    "PLAIN",
    "Path",
    "Put",
    "Same",
    "Unknown",
    "Walk",
    "hides_state",
    "look_at_module",
    "register",
    "slots_of",
]
