# SPDX-License-Identifier: MIT
"""Arrays of B adapters of PEFT on one frozen base."""

from . import losses
from .adapt import adapt
from .array import AdapterArray
from .builder import import_peft
from .collating import collate, micro_batches, sample
from .memory import Memory, memory
from .texts import Texts

__all__ = [
    "AdapterArray", "Memory", "Texts", "adapt", "collate", "import_peft", "losses", "memory", "micro_batches", "sample",
]  # fmt: skip
