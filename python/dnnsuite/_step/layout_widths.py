# SPDX-License-Identifier: MIT
"""Models per shard of an array that shares state, chosen by measurement for each layout of a batch.

A shard of many models computes products with shared weights for all of them at once, which pays for small batches. One
model at a time is faster with hundreds of rows each, and needs the activations of one model only. A batch that all
models share is computed once per shard: no trial is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import _tune as tune
from .batches import opened
from .shard_width_search import WidthTrial

Layout = tuple[tuple[bool, int], ...]
_IN_A_ROW = 2  # batches of another layout before it is followed: a smaller one at the end of an epoch is not


class LayoutWidths:
    """Trials of widths, one for each layout of batch; `follow` chooses the one for a step."""

    def __init__(self, B: int, threads: int, key: tuple[Any, ...], untimed: int) -> None:
        """`key` identifies the array; `untimed` is an argument of `WidthTrial`."""
        self.B, self._threads, self._key, self._untimed = B, threads, key, untimed
        self._trials: dict[Layout, WidthTrial] = {}
        self._known: dict[Layout, bool] = {}  # whether one model at a time was the faster way before an edit
        self._now: Layout | None = None
        self._next: Layout | None = None
        self._came = 0

    def after_edit(self, B: int) -> LayoutWidths:
        """Return the widths for the array with `B` models, without a new measurement."""
        other = LayoutWidths(B, self._threads, self._key, self._untimed)
        other._known = {**self._known, **{k: t.width == 1 for k, t in self._trials.items() if t.done}}
        return other

    def follow(self, batch: Any) -> tuple[WidthTrial, bool]:
        """Return the trial that decides a step of `batch`, and True if the step has its layout."""
        layout = layout_of(batch)
        if layout == self._now:
            self._next = None
        else:
            self._came = self._came + 1 if layout == self._next else 1
            self._next = layout
            if self._now is None or self._came >= _IN_A_ROW:
                self._now = layout
        assert self._now is not None
        trial = self._trials.get(self._now)
        if trial is None:
            trial = self._trials[self._now] = self._trial(self._now)
        return trial, layout == self._now

    def _trial(self, layout: Layout) -> WidthTrial:
        key = tune.key("width of steps that share", *self._key, layout, self.B, self._threads)
        trial = WidthTrial(self.B, self._threads, key, self._untimed, widest_first=True, settle_heavy=False)
        shared, own = (sum(2**size for of_all, size in layout if of_all is kind) for kind in (True, False))
        if layout in self._known:
            trial.take(min(trial.candidates) if self._known[layout] else max(trial.candidates))
        elif shared > own:
            trial.take(max(trial.candidates))
        return trial


def layout_of(batch: Any) -> Layout:
    """Describe a batch by its tensors: (shared by all models, bits of the number of a model's elements)."""
    if isinstance(batch, torch.Tensor):
        models = max(1, batch.size(0))
        return ((models > 1 and batch.stride(0) == 0, (batch.numel() // models).bit_length()),)
    found = None if isinstance(batch, (tuple, list)) else opened(batch)
    parts: Sequence[Any] = batch if isinstance(batch, (tuple, list)) else () if found is None else found[1]
    return tuple(one for part in parts for one in layout_of(part))
