# SPDX-License-Identifier: MIT
"""Arrays of fine-tunings: B adapters of PEFT's on one frozen base."""

from . import losses
from ._peft import import_peft
from .adapt import adapt
from .array import AdapterArray
from .collating import collate, micro_batches

__all__ = ["AdapterArray", "adapt", "collate", "import_peft", "losses", "micro_batches"]
