# SPDX-License-Identifier: MIT
"""Arrays of fine-tunings: B adapters of PEFT's on one frozen base."""

from ._peft import import_peft
from .adapt import adapt
from .array import AdapterArray

__all__ = ["AdapterArray", "adapt", "import_peft"]
