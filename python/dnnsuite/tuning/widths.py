# SPDX-License-Identifier: MIT
"""Number of trials in an array: as many as make it faster, as memory holds, and not more where it has run out."""

from __future__ import annotations

import psutil  # type: ignore[import-untyped]

__all__ = ["Width"]

_FIRST = 8
_SMALL_BYTES = 2**20  # of parameters: a step of a model is mostly overhead
_GAIN = 1.05  # a wider array has to be so many times as fast per model
_HEAVY_S = 0.02  # a model's step that keeps a core busy for so long gains nothing from company
_MEMORY_PART = 0.6  # of what is free


class Width:
    """Models of an array, from 8 up, or 16 small ones; `measured` after each epoch of a full array lets it grow.

    Args:
        asked: a fixed number; None measures.
        most: never more than so many.
    """

    def __init__(self, asked: int | None = None, most: int = 64) -> None:
        self.now = asked or _FIRST
        self._fixed, self._most = asked is not None, most
        self._rates: dict[int, float] = {}
        self._whole: tuple[int, bool] | None = None  # (now, fixed) before it was halved for the first time
        self._begun_bytes = _used_bytes()

    def begin(self, model_bytes: int) -> None:
        """Take the size of a first model's parameters: an array of small ones begins wider."""
        if not self._fixed and not self._rates and self.now == _FIRST and 0 < model_bytes < _SMALL_BYTES:
            self.now = 2 * _FIRST

    def measured(self, models: int, seconds: float, steps: int) -> None:
        """Take the time of an epoch of `models` at once; the next may be wider."""
        if models > 1:
            self._whole = None  # that there is less room is true
        if self._fixed or models != self.now or not steps:
            return
        per_model_s = seconds / models / steps
        before = self._rates.get(models // 2)
        self._rates[models] = min(per_model_s, self._rates.get(models, per_model_s))
        grew = before is None or before > _GAIN * self._rates[models]
        if grew and per_model_s < _HEAVY_S and 2 * models <= self._most and self._fits(models):
            self.now = 2 * models

    def _fits(self, more: int) -> bool:
        """True if as many models again fit into memory, by what those that are there took."""
        took = max(0, _used_bytes() - self._begun_bytes)
        return took < _MEMORY_PART * psutil.virtual_memory().available

    def halve(self, failed: int) -> None:
        """Memory ran out with `failed` models: half as many from now on."""
        self._whole = self._whole or (self.now, self._fixed)
        self.now, self._fixed = max(1, failed // 2), True

    def restore(self) -> None:
        """Memory ran out with one model alone, so it was its fault: go on as wide as before."""
        if self._whole is not None:
            (self.now, self._fixed), self._whole = self._whole, None


def _used_bytes() -> int:
    return int(psutil.Process().memory_info().rss)
