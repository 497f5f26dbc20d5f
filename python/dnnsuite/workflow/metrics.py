# SPDX-License-Identifier: MIT
"""Figures of a run from its samples: rate with interval, warm-up, per replica. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._runs import rates
from .._runs.rates import Steps
from .._runs.record import Metric

__all__ = ["measured", "on_device", "per_cpu_second", "warmup_epochs"]

_DEFINITION = (
    "items / time over the interval in which all replicas are active, through the loader, data wait included"
)
_PER_CPU_SECOND = (
    "items / CPU time of all threads of all workers after warm-up, which busy neighbours lengthen little"
)
_ON_DEVICE = "items / time of one epoch on batches that lie on the device, summed over replicas"


def warmup_epochs(replicas: Sequence[Steps]) -> tuple[int, list[dict[str, Any]]]:
    """Return (epochs to drop, what was found for each replica).

    The first of several epochs is always dropped; more of them when MSER-5 finds a steady state that starts
    later, but never more than half.
    """
    epochs = min(int(steps.epochs[-1]) + 1 for steps in replicas)
    drop, found = min(1, epochs - 1), []
    for steps in replicas:
        warmup = rates.warmup((steps.stops_ns - steps.starts_ns) * 1e-9 / steps.items)
        truncated = warmup.pop("truncated")
        found.append({**warmup, "truncated_steps": truncated})
        if warmup["steady"] and 0 < truncated < len(steps):
            before = int(steps.epochs[truncated - 1]) + 1  # the epochs warm-up touches
            drop = max(drop, min(before, epochs // 2))
    return drop, found


def on_device(results: Sequence[Mapping[str, Any]], unit: str) -> tuple[Metric, ...]:
    """Return the rate without the loader, if every worker's result has one."""
    held = [result.get("on_device") for result in results]
    if not held or not all(held):
        return ()
    found = [each for each in held if each]
    rate = sum(each["items"] / (each["stop_ns"] - each["start_ns"]) * 1e9 for each in found)
    return (Metric("throughput/data on device", rate, f"{unit}/s", definition=_ON_DEVICE),)


def per_cpu_second(
    results: Sequence[Mapping[str, Any]], replicas: Sequence[Steps], dropped: int, unit: str
) -> tuple[Metric, ...]:
    """Items per CPU second of all replicas after `dropped` epochs; nothing where a worker did not tell.

    Args:
        results: results of the workers, with `cpu_s` of each epoch.
        replicas: their steps.
    """
    told = [result.get("cpu_s") for result in results]
    if not told or not all(told):
        return ()
    seconds = sum(sum(each[dropped:]) for each in told if each)
    items = sum(float(steps.after_epochs(dropped).items.sum()) for steps in replicas)
    if not seconds > 0:
        return ()
    return (Metric("throughput/CPU second", items / seconds, f"{unit}/s", definition=_PER_CPU_SECOND),)


def measured(
    replicas: Sequence[Steps], unit: str, asynchronous: bool = False
) -> tuple[tuple[Metric, ...], dict[str, Any]]:
    """Return (metrics, window) of a run.

    Args:
        replicas: all steps of each worker.
        unit: name of the items, as "sequences".
        asynchronous: steps returned before they were done; then only whole epochs are looked at.
    """
    dropped, found = warmup_epochs(replicas)
    kept = [steps.after_epochs(dropped) for steps in replicas]
    num_steps = [len(steps) for steps in kept]
    if asynchronous:
        kept = [steps.by_epoch() for steps in kept]
    window = rates.common_window(kept)
    between = rates.interval(kept)
    per_s = f"{unit}/s"
    metrics = [
        Metric("throughput", rates.rate(kept), per_s, between.low, between.high, definition=_DEFINITION)
    ]
    for i, (steps, n) in enumerate(zip(kept, num_steps, strict=True)):
        length_s = (steps.stops_ns[-1] - steps.starts_ns[0]) * 1e-9
        metrics += [
            Metric("throughput", rates.rate([steps]), per_s, replica=i),
            Metric("time/step", float(length_s / n), "s", replica=i),
        ]
    start, stop = window or (None, None)
    return tuple(metrics), {
        "dropped_epochs": dropped,
        "warmup": found,
        "start_ns": start,
        "stop_ns": stop,
        "seconds": (stop - start) * 1e-9 if start is not None and stop is not None else 0.0,
        "steps": num_steps,
        "dated_by": "epoch" if asynchronous else "step",
        "blocks_lag1": between.lag1,
        "no_interval": between.why,
        "rate": _DEFINITION,
    }
