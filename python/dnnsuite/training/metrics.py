# SPDX-License-Identifier: MIT
"""Counts over samples that make accuracies."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["TopK"]


class TopK:
    """Number of samples whose label is among the k highest scores, for several k.

    Attributes:
        names: acc1, acc5, … in the order of the counts.
    """

    def __init__(self, ks: Sequence[int] = (1, 5)) -> None:
        self.ks = tuple(ks)
        self.names = tuple(f"acc{k}" for k in ks)

    def __repr__(self) -> str:
        return f"TopK({self.ks})"

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Scores `[..., N, C]` and labels `[N]` → counts float64 `[len(names), ...]`."""
        most = min(max(self.ks), outputs.shape[-1])
        hits = outputs.topk(most, dim=-1).indices == labels[:, None]
        return torch.stack([hits[..., :k].sum((-2, -1)) for k in self.ks]).double()
