# SPDX-License-Identifier: MIT
"""Arrays of B adapters of PEFT on one frozen base."""

from . import losses
from ._peft import import_peft
from .adapt import adapt
from .array import AdapterArray
from .collating import collate, micro_batches
from .memory import Memory, memory
from .sampling import sample
from .texts import Texts

__all__ = [
    "AdapterArray",
    "Memory",
    "Texts",
    "adapt",
    "collate",
    "import_peft",
    "losses",
    "memory",
    "micro_batches",
    "sample",
]
