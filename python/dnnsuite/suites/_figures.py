# SPDX-License-Identifier: MIT
"""Figures of a run from its observations: a rate with its interval, the steady state, the wait for data."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .. import timing
from .._runs import rates
from .._runs.rates import Sample
from ._method import Observations

Floats = npt.NDArray[np.float64]

_FEWEST = 20  # observations of which MSER-5 says anything
_KINDS = ("throttled", "contended")  # what timing.Contention tells apart
_DISTURBED = 0.25  # of the kept observations: more than that, and it is no accident
_TOLERATED = 0.05  # how far the rate of the last half may be from that of all that is kept


def figures(seen: Observations, items_per_batch: float) -> dict[str, Any]:
    """`rate_per_s`, its 95 % interval, `steady`, `data_wait_share`, `losses` and `flags` of a run.

    The rate is items over the wall time of the kept observations, the wait for data included. Its interval is
    None where they are too few, or too much alike one after the other: `no_interval` tells which.
    """
    kept = np.array(seen.seconds[seen.skip :])
    items = np.full(len(kept), items_per_batch * seen.number)
    between = timing.rate(items, kept)
    rate = float(items.sum() / kept.sum())
    steady = _steady(np.array(seen.seconds), seen.skip)
    return {
        "rate_per_s": rate,
        "rate_interval_per_s": None if between.why else [between.low, between.high],
        "no_interval": between.why,
        "dropped": seen.skip,
        "kept": len(kept),
        "steady": steady,
        "data_wait_share": sum(seen.waits_ns[seen.skip :]) * 1e-9 / float(kept.sum()),
        "losses": {"first": seen.first_loss, "last": seen.losses[-1]},
        "contention": _contention(seen),
        "flags": _flags(seen, steady),
    }


def _steady(seconds: Floats, skip: int) -> dict[str, Any]:
    """MSER-5 of all observations, and a comparison of the kept ones with their last half.

    `steady` is None where there are too few for a verdict.
    """
    warmup = rates.warmup(seconds)
    kept = seconds[skip:]
    late = kept[len(kept) // 2 :]
    drift = float(kept.mean() / late.mean() - 1)
    said = {**warmup, "method": "MSER-5, and the kept against their last half", "last_half": drift}
    if len(seconds) < _FEWEST:
        return {**said, "steady": None, "reason": f"{len(seconds)} observations are too few for a verdict"}
    if abs(drift) > _TOLERATED:
        reason = f"the last half of the kept observations is {abs(drift):.1%} {'faster' if drift > 0 else 'slower'}"
        return {**said, "steady": False, "reason": reason}
    return {**said, "reason": warmup["reason"].removeprefix("no steady state: ")}


def _flags(seen: Observations, steady: dict[str, Any]) -> list[str]:
    """Warnings to a reader of the rate, in words that are the same for every run; the record has the details."""
    disturbed = _disturbed(seen)[seen.skip :]
    often = _DISTURBED * len(disturbed)
    flags = ["no steady state"] if steady["steady"] is False else []
    return flags + [kind for kind in _KINDS if sum(kind in each for each in disturbed) > often]


def _disturbed(seen: Observations) -> list[str]:
    """Return the disturbance of each observation: throttled, contended, both joined by +, or empty."""
    columns = seen.watch.columns()
    return ["+".join(kind for kind in _KINDS if columns[kind][i]) for i in range(len(seen.watch))]


def _contention(seen: Observations) -> dict[str, Any] | None:
    """Return the machine during what is kept."""
    if not len(seen.watch):
        return None
    columns = {name: values[seen.skip :] for name, values in seen.watch.columns().items()}
    return {
        "clock_ghz": [float(columns["clock_ghz"].min()), float(columns["clock_ghz"].max())],
        "steal_s": float(columns["steal_s"].sum()),
        "pressure_s": float(columns["pressure_s"].sum()),
        "involuntary_switches": int(columns["involuntary_switches"].sum()),
        "throttled": int(columns["throttled"].sum()),
        "contended": int(columns["contended"].sum()),
    }


def samples(seen: Observations, items_per_batch: float) -> list[Sample]:
    """Every observation, kept or not."""
    disturbed = _disturbed(seen) or [""] * len(seen.starts_ns)
    items = items_per_batch * seen.number
    return [
        Sample(0, start, stop, items, "warmup" if i < seen.skip else "train", flag)
        for i, (start, stop, flag) in enumerate(zip(seen.starts_ns, seen.stops_ns, disturbed, strict=True))
    ]
