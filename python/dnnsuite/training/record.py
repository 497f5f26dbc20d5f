# SPDX-License-Identifier: MIT
"""The record of a training run: what `results.load` and `report` read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._runs import facts
from .._runs.rates import BLOCKS, Steps, interval, rate
from .._runs.record import Metric, Moment, RunRecord, Samples, Verdict, new_id
from .._runs.samples import Sample
from .experiment import Experiment
from .history import Row
from .processes import Processes

__all__ = ["record_of", "throughput"]


def throughput(samples: Sequence[Sample]) -> tuple[float, float | None, float | None]:
    """(items per second, low, high) of training alone: time between windows, as of validation, is left out.

    The first window, in which everything starts, is left out where there are others.
    """
    kept = [sample for sample in samples if sample.phase == "train"] or list(samples)
    took = np.array([sample.stop_ns - sample.start_ns for sample in kept], np.int64)
    stops = np.cumsum(took)
    items = np.array([round(sample.items) for sample in kept], np.int64)
    steps = Steps(stops - took, stops, items, np.zeros(len(kept), np.int64))
    low, high, _ = interval([steps], min(BLOCKS, len(kept)))
    return rate([steps]), low, high


def record_of(
    experiment: Experiment,
    processes: Processes,
    *,
    plan_id: str,
    preset: str,
    started: Moment,
    verdict: Verdict,
    history: Sequence[Row],
    samples: Sequence[Sample],
    parameters: int,
    asked: Mapping[str, Any],
    threads: int,
) -> RunRecord:
    """The record of a run that has ended, well or not."""
    found = facts.environment()
    identity = json.dumps(experiment.identity, sort_keys=True, default=str)
    return RunRecord(
        id=new_id(),
        kind="training",
        plan_id=plan_id,
        plan=experiment.plan,
        job=experiment.name,
        mode="ddp" if processes.world_size > 1 else "serial",
        precision=experiment.precision,
        B=1,
        repeat=0,
        verdict=verdict,
        machine=facts.machine(found["machine"]),
        device=facts.device(processes.device.type, found["machine"]),
        started=started,
        unit=experiment.data.item,
        seconds=60 * history[-1]["minutes"] if history else 0.0,
        job_version=hashlib.sha256(identity.encode()).hexdigest()[:12],
        preset=preset,
        data=experiment.data.source,
        seed=experiment.seed,
        batch_size=experiment.batch_size,
        processes=processes.world_size,
        threads=threads,
        items_per_step=experiment.batch_size / processes.world_size,
        versions=found["versions"],
        commit=facts.commit(),
        metrics=tuple(_metrics(experiment, history, samples)),
        samples=Samples() if samples else None,
        asked=dict(asked),
        resolved=experiment.identity,
        details={
            "config": experiment.name,
            "data": experiment.data.record,
            "parameters": parameters,
            "epochs": len(history),
            "steps_per_epoch": experiment.order.steps,
            "dropped_samples_per_epoch": experiment.order.dropped,
            "channels_last": experiment.channels_last,
            "compile": experiment.compile,
        },
    )


def _metrics(experiment: Experiment, history: Sequence[Row], samples: Sequence[Sample]) -> list[Metric]:
    found = []
    if samples:
        value, low, high = throughput(samples)
        what = f"{experiment.data.item} of all processes per second of training, without validation"
        found.append(Metric("throughput", value, f"{experiment.data.item}/s", low, high, definition=what))
    if not history:
        return found
    for name, value in history[-1].items():
        if name.endswith(("/train", "/valid")) and not name.startswith("seconds"):
            found.append(Metric(name, value, "", definition="of the last epoch"))
    if "acc1/valid" in history[-1]:
        best = max(row["acc1/valid"] for row in history)
        found.append(Metric("acc1/valid/best", best, "", definition="of all epochs"))
    minutes = history[-1]["minutes"]
    return found if math.isnan(minutes) else [*found, Metric("minutes", minutes, "min")]
