# SPDX-License-Identifier: MIT
"""What the samples of a run say: rate with interval, warm-up, per replica. Pure but for reading the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import timing
from .._runs import rates
from .._runs.rates import Steps
from ..errors import Error

__all__ = ["measured", "read_steps", "warmup_epochs"]

_BLOCKS = 10  # batch means: ten blocks and Student's t keep their coverage for correlated steps


def read_steps(path: Path) -> Steps:
    """The rows of a `samples.csv`.

    Raises:
        Error: it is missing or damaged; the message names it.
    """
    try:
        lines = path.read_text().splitlines()[1:]
        if not lines:
            raise ValueError("no samples in it")
        _, epochs, starts, stops, items = np.loadtxt(lines, delimiter=",", dtype=np.int64, ndmin=2).T
    except (OSError, ValueError) as error:
        raise Error(f"{path}: {error}") from error
    return Steps(starts, stops, items, epochs)


def warmup_epochs(replicas: Sequence[Steps]) -> tuple[int, list[dict[str, Any]]]:
    """(epochs to drop, what was found for each replica).

    The first of several epochs is always dropped; more of them when MSER-5 finds a steady state that starts
    later, but never more than half.
    """
    epochs = min(int(steps.epochs[-1]) + 1 for steps in replicas)
    drop, found = min(1, epochs - 1), []
    for steps in replicas:
        per_item_s = (steps.stops_ns - steps.starts_ns) * 1e-9 / steps.items
        warmup = timing.mser5(per_item_s)
        found.append({"method": "MSER-5", "truncated_steps": warmup.truncated, "steady": warmup.steady,
                      "reason": warmup.reason, "drift_per_100": warmup.drift_per_100})  # fmt: skip
        if warmup.steady and 0 < warmup.truncated < len(steps):
            before = int(steps.epochs[warmup.truncated - 1]) + 1  # the epochs warm-up touches
            drop = max(drop, min(before, epochs // 2))
    return drop, found


def measured(
    replicas: Sequence[Steps], unit: str, asynchronous: bool = False
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(metrics, window) of a run.

    Args:
        replicas: all steps of each worker.
        unit: what an item is, as "sequences".
        asynchronous: steps returned before they were done; then only whole epochs are looked at.

    A metric is {name, value, unit, low, high, replica}; `replica` is None for the run as a whole and low,
    high are None where no interval is known.
    """
    dropped, found = warmup_epochs(replicas)
    kept = [steps.after_epochs(dropped) for steps in replicas]
    num_steps = [len(steps) for steps in kept]
    if asynchronous:
        kept = [steps.by_epoch() for steps in kept]
    window = rates.common_window(kept)
    low, high, lag1 = _interval(kept)
    per_s = f"{unit}/s"
    metrics = [_metric("throughput", rates.rate(kept), per_s, low, high)]
    for i, (steps, n) in enumerate(zip(kept, num_steps, strict=True)):
        length_s = (steps.stops_ns[-1] - steps.starts_ns[0]) * 1e-9
        metrics += [
            _metric("throughput", rates.rate([steps]), per_s, replica=i),
            _metric("time/step", float(length_s / n), "s", replica=i),
        ]
    start, stop = window or (None, None)
    return metrics, {
        "dropped_epochs": dropped, "warmup": found, "start_ns": start, "stop_ns": stop,
        "seconds": (stop - start) * 1e-9 if start is not None and stop is not None else 0.0,
        "steps": num_steps, "dated_by": "epoch" if asynchronous else "step", "blocks_lag1": lag1,
        "rate": "items / time over the interval in which all replicas are active, data wait included",
    }  # fmt: skip


def _interval(kept: Sequence[Steps]) -> tuple[float | None, float | None, float | None]:
    """95 % interval of the rate by means of blocks of equal time, and the blocks' lag-1 correlation."""
    blocks = min(_BLOCKS, *(len(steps) for steps in kept))
    of_blocks = rates.block_rates(kept, max(blocks, 1))
    if len(of_blocks) < 2:
        return None, None, None
    interval = timing.batch_means(of_blocks, batches=len(of_blocks))
    return interval.low, interval.high, interval.lag1


def _metric(
    name: str,
    value: float,
    unit: str,
    low: float | None = None,
    high: float | None = None,
    replica: int | None = None,
) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "low": low, "high": high, "replica": replica}
