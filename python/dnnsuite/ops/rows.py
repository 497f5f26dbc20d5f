# SPDX-License-Identifier: MIT
"""Rows of tensors `[B, ...]` that an edit writes where they lie, so that all that refers to the tensors holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import torch


def changed_slots(slots: Sequence[int | None], B: int) -> list[int] | None:
    """List the slots that an edit of B models fills with new models; None if it has to make new tensors.

    Args:
        slots: slot that each model comes from; None for a new one.
    """
    if len(slots) != B:
        return None
    changed = [slot for slot, source in enumerate(slots) if source != slot]
    if any(slots[slot] in changed for slot in changed):
        return None  # a model would be read where another was written
    return changed


def has_rows(tensor: torch.Tensor) -> bool:
    """Return True if each element of a tensor has memory of its own, so that a row can be written alone."""
    return tensor.layout == torch.strided and all(
        stride > 0 or size < 2 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


class SavedRows:
    """Copies of rows, to put them back after an error."""

    def __init__(self, tensors: Iterable[torch.Tensor], slots: Collection[int]) -> None:
        self._saved = [(tensor, slot, tensor[slot].clone()) for tensor in tensors for slot in slots]

    def put_back(self) -> None:
        """Give the rows the values that they had."""
        for tensor, slot, value in self._saved:
            tensor[slot].copy_(value)
