# SPDX-License-Identifier: MIT
"""Packed sequences of an array: data `[B, sum of lengths, I]`, and lengths that all models share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import PackedSequence

from ..errors import InvalidArgument


class Packing:
    """Conversion of one packed batch to a padded one with lengths, and back. torch packs by time: the first steps of
    all sequences, longest first, then the second steps, and so on.
    """

    def __init__(self, packed: PackedSequence, B: int) -> None:
        self.packed, sizes = packed, packed.batch_sizes
        total = int(sizes.sum())
        if packed.data.dim() != 3 or packed.data.shape[:2] != (B, total):
            raise InvalidArgument(
                f"a PackedSequence for B={B} models has data [{B}, {total}, I], the models' packed data stacked, with "
                f"the same lengths in each; got {list(packed.data.shape)}"
            )
        device = packed.data.device
        self.steps, self.rows = len(sizes), int(sizes[0]) if len(sizes) else 0
        active = torch.arange(self.rows) < sizes.unsqueeze(1)  # [T, N]
        time, row = active.nonzero(as_tuple=True)
        self._time, self._row = time.to(device), row.to(device)
        self.lengths = active.sum(0).to(device).expand(B, -1)

    def pad(self) -> torch.Tensor:
        """Unpack to `[B, T, N, I]`, with zeros after the end of each sequence."""
        data = self.packed.data
        padded = data.new_zeros(len(data), self.steps, self.rows, data.shape[-1])
        padded[:, self._time, self._row] = data
        return padded

    def pack(self, y: torch.Tensor) -> PackedSequence:
        """Pack outputs `[B, T, N, H]`: the inverse of `pad`."""
        own = self.packed
        return PackedSequence(y[:, self._time, self._row], own.batch_sizes, own.sorted_indices, own.unsorted_indices)

    def sort(self, state: Sequence[torch.Tensor] | None) -> Sequence[torch.Tensor] | None:
        """Sort states `[B, layers, N, H]` from the caller's order into that of the packed sequences."""
        return state if state is None else _in_order(state, self.packed.sorted_indices)

    def unsort(self, state: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Undo `sort`."""
        return _in_order(state, self.packed.unsorted_indices)


def _in_order(state: Sequence[torch.Tensor], order: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    return tuple(state) if order is None else tuple(part.index_select(2, order) for part in state)
