# SPDX-License-Identifier: MIT
"""Times a cell of `grid.py` with what it works on in the caches, or in memory, where a training step leaves it."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from grid_cells import Space
from grid_sides import OURS, Side, sides
from pairwise import Values

from timing import interleaved

SLOWER = 1.5  # times the better layout: one that takes longer has a single turn
FEW_STRANGERS, MANY_NUMBERS = (2, 1e6)  # models of the layer that runs before a cold one, if all have so many numbers
_USUAL_BYTES = 32 << 20  # of the last cache, where the system does not tell
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")  # sysconf would add up the last caches of a whole socket


class OtherLayers:
    """Walk through memory as the rest of a model does: read as much as is written, in all half as much again as the
    last cache holds."""

    def __init__(self) -> None:
        sizes = [int(file.read_text().strip().removesuffix("K")) << 10 for file in CACHES.glob("index*/size")]
        numbers = max(sizes, default=_USUAL_BYTES) * 3 // 4 // 4
        self._from, self._to = torch.zeros(numbers), torch.zeros(numbers)

    def __call__(self) -> None:
        torch.add(self._from, 1.0, out=self._to)


class Stopwatch:
    """Least seconds of the sides of a cell: `hot`, each layer's forward and backward before the next layer, again and
    again; `cold`, other layers before all forwards and before all backwards, outside the clock.

    A stranger, a layer of the same kind, runs just before the clock does: what is cold are operands, not the code. It
    has as many models where the way to compute depends on that, as with few numbers.
    """

    def __init__(self, space: Space, values: Values, B: int, segment_s: float) -> None:
        self._sides, self._segment_s = sides(space, values, B), segment_s
        self.hot: dict[str, float] = {}
        self.cold: dict[str, float] = {}
        self.time_hot(1)
        most = SLOWER * min(s for name, s in self.hot.items() if name != OURS)
        self._sides = {name: side for name, side in self._sides.items() if self._runs(name, most)}
        few = B * space.cost(values)[1] > MANY_NUMBERS
        strangers = sides(space, values, min(B, FEW_STRANGERS) if few else B)
        shared = values["batch"] == "shared"
        self._cold_sides = {
            name: (side.apart() if shared and name != OURS else side, strangers[name])
            for name, side in self._sides.items()
        }

    def _runs(self, name: str, most: float) -> bool:
        return name == OURS or self.hot[name] <= most

    def time_hot(self, rounds: int) -> None:
        timings = interleaved({name: s.through for name, s in self._sides.items()}, rounds, self._segment_s)
        for name, timing in timings.items():
            self.hot[name] = min(timing.min_s, self.hot.get(name, timing.min_s))

    def time_cold(self, rounds: int, others: OtherLayers) -> None:
        for _ in range(rounds):
            for name, (side, stranger) in self._cold_sides.items():
                seconds = _cold(side, stranger, others)
                self.cold[name] = min(seconds, self.cold.get(name, seconds))


def _cold(side: Side, stranger: Side, others: OtherLayers) -> float:
    side.clear()
    stranger.clear()
    others()
    kept = stranger.forward()
    begin = time.thread_time()
    results = side.forward()
    seconds = time.thread_time() - begin
    others()
    stranger.backward(kept)
    begin = time.thread_time()
    side.backward(results)
    return seconds + time.thread_time() - begin


def ratio(seconds: dict[str, float]) -> float:
    """How many times as fast ours is as the better of the others."""
    return min(s for name, s in seconds.items() if name != OURS) / seconds[OURS]
