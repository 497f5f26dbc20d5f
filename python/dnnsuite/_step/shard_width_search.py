# SPDX-License-Identifier: MIT
"""Search for the number of models that share a thread's step: one, or as many as keep every thread busy."""

from __future__ import annotations

from .. import _tune as tune

_TRIAL_STEPS = 2  # timed steps of each candidate width, after those that warm up
# A model that keeps a core busy for so long gains nothing from sharing calls with others, and alone its
# activations are the only ones of its thread: its width is one, without a trial of wider shards, whose memory would be
# the peak. A captured step of 3 ms is no faster eight models wide; where Python makes the calls, tens of milliseconds
# may be Python's.
_HEAVY_STEP_S = {True: 0.002, False: 0.5}
# A captured step of less time per model is as fast as calls of operators: one model at a time makes more of them.
_LIGHT_STEP_S = 0.0002


class WidthTrial:
    """Find the fastest width from the times of training steps.

    Run each step with `width` models per shard and give its time to `add`, until `done`. The choice is kept
    under `key` and not tried again.
    """

    def __init__(
        self,
        B: int,
        threads: int,
        key: str,
        untimed: int = 1,
        widest_first: bool = False,
        settle_heavy: bool = True,
    ) -> None:
        """Up to `untimed` first steps of each width warm up: allocations, and the capture of the step. Small models
        begin with the `widest_first`, because a step of few of them is mostly Python. With `settle_heavy`, heavy models
        run one by one without a trial."""
        threads = min(threads, B)
        self.candidates = sorted({1, -(-B // threads)}, reverse=widest_first)
        self.width = self.candidates[0]
        self.done = len(self.candidates) == 1
        self._key, self._untimed = key, untimed
        self._warming_up = untimed
        self._settle_heavy = settle_heavy
        self._models_per_core = B / threads
        self._seconds: dict[int, list[float]] = {candidate: [] for candidate in self.candidates}
        known = None if self.done else tune.table().get(key)
        if known in self.candidates:
            self.width, self.done = known, True

    def add(self, seconds: float, captured: bool = False) -> None:
        """Add the time of a step at `width`, `captured` or run by Python; set the width of the next."""
        if self._warming_up:
            self._warming_up = 0 if captured else self._warming_up - 1
            return
        mine = self._seconds[self.width]
        mine.append(seconds)
        if self._settle_heavy and seconds / self._models_per_core > _HEAVY_STEP_S[captured]:
            self._settle(1)
        elif captured and self.width > 1 and seconds / self._models_per_core < _LIGHT_STEP_S:
            self._settle(self.width)
        elif len(mine) >= _TRIAL_STEPS:
            left = [candidate for candidate in self.candidates if not self._seconds[candidate]]
            if left:
                self.width, self._warming_up = left[0], self._untimed
            else:
                self._settle(min(self.candidates, key=lambda candidate: min(self._seconds[candidate])))

    def take(self, width: int) -> None:
        """Settle a width without a trial."""
        self.width, self.done = width, True

    def _settle(self, width: int) -> None:
        self.take(width)
        tune.table().put(self._key, width)
