# SPDX-License-Identifier: MIT
"""Order of samples: a function of seed and epoch alone, whatever the number of processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

__all__ = ["Order", "Share", "share_of", "validation_batches"]


class Share(NamedTuple):
    """One process's part of a batch.

    Attributes:
        epoch: epoch of the batch; augmentation depends on it.
        indices: indices of this process's samples.
        whole: samples in the batch, over all processes.
        counted: samples of `indices` that count: 0 where the process got none and takes one to keep in step.
    """

    epoch: int
    indices: list[int]
    whole: int
    counted: int


class Order:
    """Shuffled batches of a training set.

    Each epoch is a permutation of its own, cut into batches; a process of rank r takes every world_size-th sample of
    each batch from the r-th on. So the batches, and their union, do not depend on the number of processes.

    Args:
        samples: size of the training set.
        batch_size: samples of a batch, over all processes.
        drop_last: leave out the rest of a permutation that fills no batch.
        most: batches of an epoch; 0 for all.
    """

    def __init__(self, samples: int, batch_size: int, seed: int = 0, drop_last: bool = True, most: int = 0) -> None:
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        full = samples // batch_size
        self.steps = full if drop_last else -(-samples // batch_size)
        self.steps = min(self.steps, most) if most else self.steps

    @property
    def dropped(self) -> int:
        """Samples of each epoch that no step sees; others in each epoch."""
        return max(0, self.samples - self.steps * self.batch_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[torch.Tensor]:
        """Indices `[n]` of each batch of an epoch, from batch `start` on."""
        mixed = ((self.seed & 0xFFFFFFFF) << 31) ^ (epoch * 0x9E3779B1 & 0x7FFFFFFF)
        order = torch.randperm(self.samples, generator=torch.Generator().manual_seed(mixed))
        for step in range(start, self.steps):
            yield order[step * self.batch_size : (step + 1) * self.batch_size]


def share_of(batch: torch.Tensor, epoch: int, rank: int, world_size: int) -> Share:
    """Take one of `world_size` processes' part of a batch."""
    mine = batch[rank::world_size].tolist()
    return Share(epoch, mine or batch[:1].tolist(), len(batch), len(mine))


def validation_batches(samples: int, batch_size: int, rank: int, world_size: int) -> Iterator[Share]:
    """Yield the validation batches of one process; every sample is in one batch of one process.

    Args:
        samples: number of samples.
        batch_size: most samples of a batch.
        rank, world_size: number of this process, and of all.
    """
    mine = range(samples)[rank::world_size]
    for start in range(0, len(mine), batch_size):
        indices = list(mine[start : start + batch_size])
        yield Share(0, indices, len(indices), len(indices))
