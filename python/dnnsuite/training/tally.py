# SPDX-License-Identifier: MIT
"""Sums of losses and counts over batches, fetched from the device now and then."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import torch

__all__ = ["Results", "Tally"]

# Mean losses `[]` and counts `[n]` of a batch; of an array `[B]` and `[B, n]`. May wait for the step.
Results = Callable[[], tuple[torch.Tensor, torch.Tensor]]

_UNDER_WAY = 2  # steps that need not be done yet when another one is asked for


class Tally:
    """Sum of losses, counts of the metrics and number of samples of one process, for each model.

    `add` only keeps tensors; :meth:`collect` fetches them, which waits for the device.

    Attributes:
        totals: sums for each model: loss, samples, counts.

    Args:
        names: names of the metrics.
        models: trained at once.
    """

    def __init__(self, names: tuple[str, ...], models: int = 1) -> None:
        self._names = names
        self.totals = [[0.0] * (2 + len(names)) for _ in range(models)]
        self._asked: deque[Results] = deque()
        self._losses: list[torch.Tensor] = []
        self._counts: list[torch.Tensor] = []
        self._samples: list[int] = []

    def __len__(self) -> int:
        """Batches that were not collected yet."""
        return len(self._samples)

    def add(self, results: Results, samples: int) -> None:
        """Take in the results of a batch of `samples` samples."""
        self._asked.append(results)
        self._samples.append(samples)
        if len(self._asked) > _UNDER_WAY:
            self._take()

    def _take(self) -> None:
        losses, counts = self._asked.popleft()()
        self._losses.append(losses)
        self._counts.append(counts)

    def collect(self) -> list[float]:
        """Add the kept batches to `totals`; return, by model, its first batch whose loss is not finite,
        else infinity."""
        first = [math.inf] * len(self.totals)
        while self._asked:
            self._take()
        if not self._losses:
            return first
        shape = len(self._losses), len(self.totals)
        losses = torch.stack(self._losses).view(shape).tolist()
        counts = torch.stack(self._counts).view(*shape, len(self._names)).tolist()
        for i, samples in enumerate(self._samples):
            for model, totals in enumerate(self.totals):
                if not math.isfinite(losses[i][model]):
                    first[model] = min(first[model], i)
                if samples:
                    _add(totals, losses[i][model] * samples, samples, counts[i][model])
        self._losses.clear()
        self._counts.clear()
        self._samples.clear()
        return first

    def since(self, before: Sequence[Sequence[float]]) -> dict[str, float]:
        """Means of the first model over the batches since its totals were `before`."""
        return self.means([now - then for now, then in zip(self.totals[0], before[0], strict=True)])

    def keep(self, slots: Sequence[int]) -> None:
        """Continue with these models only; everything must be collected."""
        self.totals = [self.totals[slot] for slot in slots]

    def means(self, totals: Sequence[float]) -> dict[str, float]:
        """Mean loss and metrics of one model's totals over all processes."""
        samples = totals[1] or math.nan
        return {"loss": totals[0] / samples} | {
            name: count / samples for name, count in zip(self._names, totals[2:], strict=True)
        }


def _add(totals: list[float], loss: float, samples: int, counts: Sequence[float]) -> None:
    totals[0] += loss
    totals[1] += samples
    for place, count in enumerate(counts, 2):
        totals[place] += count
