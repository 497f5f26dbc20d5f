# SPDX-License-Identifier: MIT
"""Sums of losses and counts over batches, fetched from the device now and then."""

from __future__ import annotations

import math
from typing import Any

import torch

__all__ = ["Tally"]


class Tally:
    """Sum of losses, counts of the metrics and number of samples of one process.

    `add` only keeps tensors; :meth:`collect` fetches them, which waits for the device.

    Args:
        names: of the metrics.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self.totals = [0.0] * (2 + len(names))  # loss, samples, counts
        self._losses: list[torch.Tensor] = []
        self._counts: list[torch.Tensor] = []
        self._samples: list[int] = []

    def __len__(self) -> int:
        """Batches that were not collected yet."""
        return len(self._losses)

    def add(self, loss: torch.Tensor, counts: torch.Tensor, samples: int) -> None:
        """Take in a batch: its mean loss, counts `[len(names)]`, and the samples that count."""
        self._losses.append(loss.detach())
        self._counts.append(counts)
        self._samples.append(samples)

    def collect(self) -> float:
        """Add what was kept to `totals`; return the number of its first batch with a loss not finite, else infinity."""
        if not self._losses:
            return math.inf
        losses = torch.stack(self._losses).tolist()
        counts = torch.stack(self._counts).tolist()
        first = math.inf
        for i, (loss, of_batch, samples) in enumerate(zip(losses, counts, self._samples, strict=True)):
            if not math.isfinite(loss):
                first = min(first, i)
            if samples:
                self.totals[0] += loss * samples
                self.totals[1] += samples
                for j, count in enumerate(of_batch):
                    self.totals[2 + j] += count
        self._losses.clear()
        self._counts.clear()
        self._samples.clear()
        return first

    def means(self, totals: list[float]) -> dict[str, Any]:
        """Mean loss and metrics of totals over all processes."""
        samples = totals[1] or math.nan
        return {"loss": totals[0] / samples} | {
            name: count / samples for name, count in zip(self._names, totals[2:], strict=True)
        }
