# SPDX-License-Identifier: MIT
"""Count of edits that write new models in the memory of the old ones."""

from __future__ import annotations


class EditsInPlace:
    """Counter of this process; code with state of models beside their tensors compares it with the last one it has
    seen."""

    count = 0

    @classmethod
    def note(cls) -> None:
        """Count one more."""
        cls.count += 1
