# SPDX-License-Identifier: MIT
"""Random order of samples, without end."""

from __future__ import annotations

from .._lazy import torch
from ..errors import InvalidArgument


class Order:
    """Indices below `count` without end: a new permutation each epoch, a batch may span two of them.

    Of `world_size` processes with the same seed, each gets other samples: the rank-th of every `world_size`.

    Raises InvalidArgument if there are fewer samples than processes.
    """

    def __init__(self, count: int, seed: int = 0, rank: int = 0, world_size: int = 1) -> None:
        if count < world_size:
            raise InvalidArgument(f"{count} samples are not enough for {world_size} processes")
        self.count, self.rank, self.world_size = count, rank, world_size
        self._generator = torch.Generator().manual_seed(seed)
        self._rest = torch.empty(0, dtype=torch.int64)

    def take(self, n: int) -> torch.Tensor:
        """Return the next indices `[n]`, on the CPU."""
        parts, missing = [self._rest], n - len(self._rest)
        while missing > 0:
            parts.append(torch.randperm(self.count, generator=self._generator)[self.rank :: self.world_size])
            missing -= len(parts[-1])
        taken = torch.cat(parts)
        self._rest = taken[n:]
        return taken[:n]
