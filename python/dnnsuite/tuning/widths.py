# SPDX-License-Identifier: MIT
"""Number of trials in an array: as many as make it faster, as memory holds, and not more where it has run out."""

from __future__ import annotations

import psutil  # type: ignore[import-untyped]

_FIRST = 8
_SMALL_BYTES = 2**20  # of parameters: a step of a model is mostly overhead
_GAIN = 1.05  # a wider array has to be so many times as fast per model
_HEAVY_S = 0.02  # a model's step that keeps a core busy for so long gains nothing from company
_LIGHT_S = 0.004  # one for so long gains from much
_MEMORY_PART = 0.6  # of what is free


class Width:
    """Number of models in an array: 8 at first, 16 small ones; it grows by what `measured` is told after each epoch.

    Args:
        asked: a fixed number; None measures.
        most: upper limit.
    """

    def __init__(self, asked: int | None = None, most: int = 64) -> None:
        self.now = asked or _FIRST
        self._fixed, self._most = asked is not None, most
        self._before_s: float | None = None  # time of a model's step before the array grew
        self._whole: tuple[int, bool] | None = None  # (now, fixed) before it was halved for the first time
        self._begun_bytes = _used_bytes()

    def begin(self, model_bytes: int) -> None:
        """Take the size of a first model's parameters: an array of small ones begins wider."""
        if not self._fixed and self._before_s is None and self.now == _FIRST and 0 < model_bytes < _SMALL_BYTES:
            self.now = 2 * _FIRST

    def measured(self, models: int, seconds: float, steps: int) -> None:
        """Take the time of an epoch of `models` at once; the next may be wider."""
        if models > 1:
            self._whole = None  # that there is less room is true
        if self._fixed or models != self.now or not steps:
            return
        step_s = seconds / models / steps
        grew = self._before_s is None or self._before_s > _GAIN * step_s
        wider = min(self._most, models * (4 if step_s < _LIGHT_S else 2))
        if grew and step_s < _HEAVY_S and wider > models and self._fits(wider / models - 1):
            self.now, self._before_s = wider, step_s

    def _fits(self, more: float) -> bool:
        """True if `more` times as many models in addition fit into memory, by what those that are there took."""
        took = max(0, _used_bytes() - self._begun_bytes)
        return more * took < _MEMORY_PART * psutil.virtual_memory().available

    def halve(self, failed: int) -> None:
        """Halve the width, after memory ran out with `failed` models."""
        self._whole = self._whole or (self.now, self._fixed)
        self.now, self._fixed = max(1, failed // 2), True

    def restore(self) -> None:
        """Go back to the width before `halve`, after memory ran out with one model alone."""
        if self._whole is not None:
            (self.now, self._fixed), self._whole = self._whole, None


def _used_bytes() -> int:
    return int(psutil.Process().memory_info().rss)
