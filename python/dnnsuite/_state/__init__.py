# SPDX-License-Identifier: MIT
"""Python state, as code can see it in values: one walk, one snapshot to compare, and reasons for what has none."""

from .kinds import DESCRIPTIONS, look_at_module, register
from .restore import Contents, Kept, keep_bindings, keep_cell, keep_contents, keep_names, keep_reference
from .walk import (
    PLAIN,
    PLAIN_TYPES,
    Path,
    Put,
    Same,
    Unknown,
    Walk,
    alike,
    attribute_of,
    dictionary_of,
    hides_state,
    holds_lookalikes,
    holds_others,
    is_plain,
    mark,
    slots_of,
)
from .watch import STANDS_FOR, Watch

__all__ = [
    "DESCRIPTIONS", "PLAIN", "PLAIN_TYPES", "STANDS_FOR", "Contents", "Kept", "Path", "Put", "Same", "Unknown", "Walk",
    "Watch", "alike", "attribute_of", "dictionary_of", "hides_state", "holds_lookalikes", "holds_others", "is_plain",
    "keep_bindings", "keep_cell", "keep_contents", "keep_names", "keep_reference", "look_at_module", "mark",
    "register", "slots_of",
]  # fmt: skip
