# SPDX-License-Identifier: MIT
"""Cache of answers about tensors on a GPU, because each question waits for the device."""

from __future__ import annotations

import torch

MOST = 64  # tensors that answers are kept of


class KeptAnswers:
    """Cache of `bool(tensor.any())`, valid until a write into the tensor."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[torch.Tensor, int, bool]] = {}

    def any(self, tensor: torch.Tensor) -> bool:
        """Return `bool(tensor.any())`."""
        seen = self._known.get(id(tensor))
        if seen is None or seen[0] is not tensor or seen[1] != tensor._version:
            if len(self._known) >= MOST:
                self._known.clear()
            seen = self._known[id(tensor)] = tensor, tensor._version, bool(tensor.any())
        return seen[2]
