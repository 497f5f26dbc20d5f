# SPDX-License-Identifier: MIT
"""Figures of a run from its turns: rate and speedup with intervals, per replica, per CPU second."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from .._runs import rates
from .._runs.record import Metric
from .._runs.turn_session import Session, Turn
from .._runs.turns import BUSY, Known
from ..results.summary import SPEEDUP

Key = TypeVar("Key", bound=Hashable)

_DEFINITION = "items / time over the turns in which all replicas are active, through the loader, data wait included"
_BY_CPU_TIME = "items / CPU time of all replicas' turns on one core, whose other time neighbours had"
_PER_CPU_SECOND = "items / CPU time of all threads of all workers in the turns that nobody disturbed"
_ON_DEVICE = "items / time of one epoch on batches that lie on the device, summed over replicas"
UNSETTLED = "rated before its steps had settled"
_SPEEDUP = "rate / serial's rate of the same round, geometric mean over the rounds that nobody disturbed"


def on_device(results: Sequence[Mapping[str, Any]], unit: str, by_cpu_time: bool = False) -> tuple[Metric, ...]:
    """Return the rate without the loader, if every worker's result has one."""
    held = [result.get("on_device") for result in results]
    if not held or not all(held):
        return ()
    found = [each for each in held if each]
    if by_cpu_time:
        rate = sum(each["items"] for each in found) / max(sum(each["cpu_s"] for each in found), 1e-9)
    else:
        rate = sum(each["items"] / (each["stop_ns"] - each["start_ns"]) * 1e9 for each in found)
    return (Metric("throughput/data on device", rate, f"{unit}/s", definition=_ON_DEVICE),)


def measured(
    session: Session[Key], key: Key, results: Sequence[Mapping[str, Any]], unit: str, warm_up: int = 0
) -> tuple[tuple[Metric, ...], dict[str, Any], tuple[str, ...]]:
    """Return (metrics, window, disturbances) of a way that had turns.

    Args:
        results: results of its workers.
        unit: name of the items, as "sequences".
        warm_up: first rounds that do not count.
    """
    turns = session.kept(key, warm_up)
    by_cpu_time = all(turn.by_cpu_time for turn in turns)
    own, per_s = session.rounds.rate(key), f"{unit}/s"
    items, cpu_s = sum(turn.items for turn in turns), sum(turn.cpu_s for turn in turns)
    rate = items / cpu_s if by_cpu_time and cpu_s else _rate(turns)
    low, high = (rate * end / own.value if math.isfinite(end) else None for end in (own.low, own.high))
    definition = _BY_CPU_TIME if by_cpu_time else _DEFINITION
    metrics = [Metric("throughput", rate, per_s, low, high, definition=definition)]
    for i in range(len(turns[0].replicas)):
        alone = [Turn([turn.replicas[i]], 0.0) for turn in turns]
        steps = sum(len(turn.replicas[i]) for turn in turns)
        metrics += [
            Metric("throughput", _rate(alone), per_s, replica=i),
            Metric("time/step", sum(turn.seconds for turn in alone) / steps, "s", replica=i),
        ]
    found, verdict = session.known(key)
    if key == session.baseline:  # which nothing is compared with; its rate has an interval of its own
        verdict = "ok"
    if session.baseline is not None:
        below, above = (end if math.isfinite(end) else None for end in (found.low, found.high))
        metrics.append(Metric(SPEEDUP, found.value, "1", below, above, definition=_SPEEDUP))
    metrics += on_device(results, unit, by_cpu_time)
    if cpu_s > 0:
        metrics.append(Metric("throughput/CPU second", items / cpu_s, per_s, definition=_PER_CPU_SECOND))
    step_s = [
        (turn.replicas[0].stops_ns - turn.replicas[0].starts_ns) * 1e-9 / turn.replicas[0].items for turn in turns
    ]
    steady = rates.warmup(np.concatenate(step_s))
    spans = [rates.common_window(turn.replicas) for turn in turns]
    window = {
        "warm_up_rounds": warm_up, "warmup": [steady], "start_ns": min((span[0] for span in spans if span),
        default=None), "stop_ns": max((span[1] for span in spans if span), default=None),
        "spans_ns": [list(span) for span in spans if span], "seconds": sum(turn.seconds for turn in turns),
        "steps": [sum(len(turn.replicas[i]) for turn in turns) for i in range(len(turns[0].replicas))],
        "rounds": found.rounds, "pairs": found.pairs, "disturbed_rounds": session.disturbed(key),
        "verdict": verdict, "no_interval": found.why, "rate": definition,
    }  # fmt: skip
    return tuple(metrics), window, _noted(session, key, found, verdict)


def _noted(session: Session[Key], key: Key, found: Known, verdict: str) -> tuple[str, ...]:
    """Say what a reader must know of the machine: cores that neighbours had, rounds that they disturbed."""
    noted = [f"on {session.cores}"] if session.cores.shared else []
    if key in session.unsettled:
        noted.append(UNSETTLED)
    if verdict != "ok":
        reason = found.reason()
        if session.cores.shared and not reason.startswith(BUSY):
            reason = BUSY + reason
        return (*noted, f"{verdict}: {reason}")
    return (*noted, *([found.disturbed] if found.disturbed else []))


def _rate(turns: Sequence[Turn]) -> float:
    """Items per second in which all replicas were active."""
    seconds = sum(turn.seconds for turn in turns)
    items = sum(rates.rate(turn.replicas) * turn.seconds for turn in turns if turn.seconds)
    return items / seconds if seconds > 0 else math.nan
