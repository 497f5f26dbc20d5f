# SPDX-License-Identifier: MIT
"""Items per second from the steps of one or several replicas. Pure arithmetic on nanoseconds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import timing
from ..errors import InvalidArgument

__all__ = ["BLOCKS", "Steps", "block_rates", "common_window", "interval", "items_between", "rate", "warmup"]

Int64s = npt.NDArray[np.int64]

BLOCKS = 10  # batch means: ten and Student's t keep their coverage for correlated observations


@dataclass(frozen=True)
class Steps:
    """The timed steps of one replica, in order.

    `starts_ns`, `stops_ns` [S] on the monotonic clock all processes of a machine share; `items` [S] counts
    what a step finished, over all models of the replica; `epochs` [S] tells the epoch.
    """

    starts_ns: Int64s
    stops_ns: Int64s
    items: Int64s
    epochs: Int64s

    def __len__(self) -> int:
        return len(self.stops_ns)

    def after_epochs(self, dropped: int) -> Steps:
        """Leave out the first `dropped` epochs (warm-up)."""
        kept = self.epochs >= (self.epochs[0] + dropped if len(self) else 0)
        return Steps(self.starts_ns[kept], self.stops_ns[kept], self.items[kept], self.epochs[kept])

    def by_epoch(self) -> Steps:
        """Take each epoch as one step, for a job whose steps return before they are done."""
        epochs, first = np.unique(self.epochs, return_index=True)
        last = np.append(first[1:], len(self)) - 1
        return Steps(self.starts_ns[first], self.stops_ns[last], np.add.reduceat(self.items, first), epochs)


def common_window(replicas: Sequence[Steps]) -> tuple[int, int] | None:
    """(start, stop) in which every replica is active, last start to first stop; None if there is none."""
    if not replicas or any(len(steps) == 0 for steps in replicas):
        return None
    start = max(int(steps.starts_ns[0]) for steps in replicas)
    stop = min(int(steps.stops_ns[-1]) for steps in replicas)
    return (start, stop) if stop > start else None


def items_between(steps: Steps, start_ns: float, stop_ns: float) -> float:
    """Items finished in an interval; a step that is cut by its edge counts by the share of time inside.

    Time between two steps (data, synchronisation, end of epoch) belongs to the step that follows.
    """
    times = np.concatenate([steps.starts_ns[:1], steps.stops_ns]) - steps.starts_ns[0]
    done = np.concatenate([[0], np.cumsum(steps.items)])
    edges = np.array([start_ns, stop_ns], dtype=np.float64) - float(steps.starts_ns[0])
    first, last = np.interp(edges, times, done)
    return float(last - first)


def rate(replicas: Sequence[Steps]) -> float:
    """Items per second of all replicas together over their common window; NaN when there is none."""
    window = common_window(replicas)
    if window is None:
        return float("nan")
    return sum(items_between(steps, *window) for steps in replicas) / ((window[1] - window[0]) * 1e-9)


def block_rates(replicas: Sequence[Steps], blocks: int) -> npt.NDArray[np.float64]:
    """Rates [blocks] in equal blocks of the common window; empty when there is no window."""
    if blocks < 1:
        raise InvalidArgument(f"blocks={blocks}: must be at least 1")
    window = common_window(replicas)
    if window is None:
        return np.empty(0)
    edges = np.linspace(window[0], window[1], blocks + 1)
    length_s = (window[1] - window[0]) * 1e-9 / blocks
    return np.array(
        [sum(items_between(s, a, b) for s in replicas) / length_s for a, b in itertools.pairwise(edges)]
    )


def interval(replicas: Sequence[Steps], blocks: int) -> tuple[float | None, float | None, float | None]:
    """(low, high) of the rate with 95 % by means of blocks of equal time, and the blocks' lag-1 correlation.

    No bounds are given where the blocks are too few, or too much alike one after the other, to tell.
    """
    of_blocks = block_rates(replicas, max(blocks, 1))
    if len(of_blocks) < 2:
        return None, None, None
    found = timing.batch_means(of_blocks, batches=len(of_blocks), independent=True)
    return (None, None, found.lag1) if found.why else (found.low, found.high, found.lag1)


def warmup(seconds: npt.NDArray[np.float64]) -> dict[str, Any]:
    """The steady state of a series by MSER-5: `truncated` values before it; `steady` False where there is none."""
    found = timing.mser5(seconds)
    return {
        "method": "MSER-5",
        "truncated": found.truncated,
        "steady": found.steady,
        "reason": found.reason,
        "drift_per_100": found.drift_per_100,
    }
