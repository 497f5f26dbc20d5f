# SPDX-License-Identifier: MIT
"""Trial of a loop over plain models where steps cannot be captured: a fused step may spend more time in Python."""

from __future__ import annotations

from .. import _tune as tune

_UNTIMED, _TIMED = 1, 2  # steps of each way
_LEVEL = 0.97  # the loop must take less than this share of the other's time
_HEAVY_STEP_S = 0.005  # a model whose loop gains nothing from a shard of many: its activations alone are kept


class LoopTrial:
    """Compare steps as they are with steps of a loop, each in shards of its own width.

    Run each step with `width` models per shard, and in a loop if `loop`; give its time to `add` until `done`. The
    choice is kept under `key`.
    """

    def __init__(self, key: str, width: int, wide: int) -> None:
        """`width` is the number of models per shard of fused steps; the loop's shards have `wide` models unless they
        are heavy."""
        self.loop, self.done, self.why = False, False, ""
        self.width, self._fused_width, self._wide = width, width, wide
        self._key, self._seconds = key, {False: list[float](), True: list[float]()}
        known = tune.table().get(key)
        if isinstance(known, list):
            self.settle(known[0], known[1], wide if known[2] else width)

    def add(self, seconds: float, models_per_core: float, loops: bool) -> None:
        """Take the time of a step; `loops` is False if the models cannot run in a loop."""
        mine = self._seconds[self.loop]
        mine.append(seconds)
        if self.loop and not loops:
            self.settle(False, "", self._fused_width)
        elif len(mine) < _UNTIMED + _TIMED:
            return
        elif not self.loop:
            self.loop = True
            self.width = self._fused_width if seconds / models_per_core > _HEAVY_STEP_S else self._wide
        else:
            self._decide()

    def _decide(self) -> None:
        fused_s, loop_s = (min(self._seconds[way][_UNTIMED:]) for way in (False, True))
        loop = loop_s < _LEVEL * fused_s
        why = f"a step of a loop over the models takes {1e3 * loop_s:.3g} ms, else {1e3 * fused_s:.3g} ms"
        wide = self.width == self._wide
        tune.table().put(self._key, [loop, why, wide])
        self.settle(loop, why, self.width if loop else self._fused_width)

    def settle(self, loop: bool, why: str, width: int) -> None:
        """Settle the choice; `width` is the number of models per shard of the loop."""
        self.loop, self.done, self.why = loop, True, why if loop else ""
        self.width = width if loop else self._fused_width
