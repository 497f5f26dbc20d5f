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
from .._runs.rates import RateInterval, Sample, Steps, interval, rate
from .._runs.record import Metric, Moment, RunRecord, Samples, Verdict, new_id
from .array import ExperimentArray
from .experiment import Experiment
from .history import MODEL, Row
from .processes import Processes
from .speedup import Speedup
from .until import arrivals, to_target

__all__ = ["record_of", "throughput"]


def throughput(samples: Sequence[Sample]) -> tuple[float, RateInterval]:
    """Return (items per second, their interval) of training alone: time between windows, as of validation, is left out.

    The first window, in which everything starts, is left out where there are others.
    """
    kept = [sample for sample in samples if sample.phase == "train"] or list(samples)
    took = np.array([sample.stop_ns - sample.start_ns for sample in kept], np.int64)
    stops = np.cumsum(took)
    items = np.array([round(sample.items) for sample in kept], np.int64)
    steps = Steps(stops - took, stops, items, np.zeros(len(kept), np.int64))
    return rate([steps]), interval([steps])


def record_of(
    made: Experiment | ExperimentArray,
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
    ended: Mapping[int, str] | None = None,
    speedup: Speedup | None = None,
    changed: Mapping[str, str] | None = None,
    audits: int = 0,
) -> RunRecord:
    """Make the record of a run that has ended, well or not.

    Args:
        made: the experiment, or the array of experiments.
        processes: the run's processes; this one is the first.
        plan_id: id of the run's directory.
        preset: preset that was asked for.
        started: start of the run.
        verdict: status, and the failure if there is one.
        history: rows of metrics.csv.
        samples: windows of training and validation.
        parameters: number of parameters of one model.
        asked: options as they were given.
        threads: CPU threads of a process.
        ended: models of an array that ended early, with the reason.
        speedup: speed of an array over models alone, where it was measured.
        changed: differences when the run was resumed, as sentences by name.
        audits: replayed steps of an array that were run both ways and left the same bits.
    """
    found = facts.environment()
    array = made if isinstance(made, ExperimentArray) else None
    experiment = array.first if array else made
    assert isinstance(experiment, Experiment)
    B, settings = array.B if array else 1, _settings(made)
    mode = "hfta" if array else "ddp" if processes.world_size > 1 else "serial"
    return RunRecord(
        id=new_id(),
        kind="training",
        plan_id=plan_id,
        plan=experiment.plan,
        job=experiment.name,
        mode=mode,
        precision=experiment.precision,
        B=B,
        repeat=0,
        verdict=verdict,
        machine=facts.machine(found["machine"]),
        device=facts.device(processes.device.type, found["machine"]),
        started=started,
        unit=experiment.data.item,
        seconds=60 * history[-1]["minutes"] if history else 0.0,
        job_version=_version(settings),
        preset=preset,
        data=experiment.data.source,
        seed=experiment.seed,
        batch_size=experiment.batch_size,
        processes=processes.world_size,
        threads=threads,
        items_per_step=B * experiment.batch_size / processes.world_size,
        versions=found["versions"],
        commit=facts.commit(),
        metrics=tuple(_metrics(made, experiment, history, samples, speedup)),
        samples=Samples() if samples else None,
        window={"no_interval": throughput(samples)[1].why} if samples else {},
        asked=dict(asked),
        changed=dict(changed or {}),
        resolved=settings,
        details={
            **_details(made, experiment, history, ended or {}),
            "parameters": parameters,
            **({"audits_passed": audits} if array else {}),
        },
    )


def _version(settings: Mapping[str, Any]) -> str:
    """Return the version of a job: a hash of its settings but for the seed, over which runs may be averaged."""
    own = {key: value for key, value in settings.items() if key not in ("seed", "models")}
    models = [{key: value for key, value in each.items() if key != "seed"} for each in settings.get("models", ())]
    text = json.dumps({**own, "models": models} if models else own, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _details(
    made: Experiment | ExperimentArray, experiment: Experiment, history: Sequence[Row], ended: Mapping[int, str]
) -> dict[str, Any]:
    """Details of a run that have no field of their own in a record."""
    models = {"models": _models(made, history, ended)} if isinstance(made, ExperimentArray) else {}
    return {
        "config": experiment.name,
        "data": experiment.data.record,
        "epochs": int(history[-1]["epoch"]) if history else 0,
        "steps_per_epoch": experiment.order.steps,
        "dropped_samples_per_epoch": experiment.order.dropped,
        "channels_last": experiment.channels_last,
        "compile": experiment.compile,
        **_until(experiment, history),
        **models,
    }


def _until(experiment: Experiment, history: Sequence[Row]) -> dict[str, Any]:
    """The target that the run was to reach, and the models that did."""
    if experiment.until is None:
        return {}
    return {"until": {**vars(experiment.until), "reached": sorted(arrivals(experiment.until, history))}}


def _settings(made: Experiment | ExperimentArray) -> dict[str, Any]:
    """Settings for the record: of one model, or those all share and the others of each."""
    if isinstance(made, Experiment):
        return made.identity
    own = [each.identity for each in made.experiments]
    alike = {key: value for key, value in own[0].items() if all(each.get(key) == value for each in own)}
    return {**alike, "models": [{k: v for k, v in each.items() if k not in alike} for each in own]}


def _models(array: ExperimentArray, history: Sequence[Row], ended: Mapping[int, str]) -> list[dict[str, Any]]:
    """Name, epochs and, where it ended before the others, the reason, of each model."""
    return [
        {
            "name": name,
            "epochs": sum(row[MODEL] == number for row in history),
            **({"ended": ended[number]} if number in ended else {}),
        }
        for number, name in enumerate(array.names)
    ]


def _metrics(
    made: Experiment | ExperimentArray,
    experiment: Experiment,
    history: Sequence[Row],
    samples: Sequence[Sample],
    speedup: Speedup | None,
) -> list[Metric]:
    found = []
    if samples:
        value, between = throughput(samples)
        what = f"{experiment.data.item} of all processes per second of training, without validation"
        if isinstance(made, ExperimentArray):
            what = f"{experiment.data.item} of all models per second of training, without validation"
        found.append(
            Metric("throughput", value, f"{experiment.data.item}/s", between.low, between.high, definition=what)
        )
    if speedup is not None:
        what = "items per second of the array over those of one of its models alone, measured alternately after epochs"
        found.append(Metric("speedup", speedup.value, "×", speedup.low, speedup.high, definition=what))
    if not history:
        return found
    if experiment.until is not None:
        models = made.B if isinstance(made, ExperimentArray) else 1
        there = arrivals(experiment.until, history)
        found += to_target(experiment.until, there, models, experiment.batch_size, experiment.data.item)
    if isinstance(made, ExperimentArray):
        for number, name in enumerate(made.names):
            rows = [row for row in history if row[MODEL] == number]
            found += _of_model(rows, number, f" of model {number}, {name}")
    else:
        found += _of_model(history, None, "")
    minutes = history[-1]["minutes"]
    return found if math.isnan(minutes) else [*found, Metric("minutes", minutes, "min")]


def _of_model(history: Sequence[Row], number: int | None, who: str) -> list[Metric]:
    """Metrics of one model's last epoch, and its best accuracy."""
    if not history:
        return []
    found = [
        Metric(name, value, "", replica=number, definition=f"of the last epoch{who}")
        for name, value in history[-1].items()
        if name.endswith(("/train", "/valid")) and not name.startswith("seconds")
    ]
    if "acc1/valid" in history[-1]:
        best = max(row["acc1/valid"] for row in history)
        found.append(Metric("acc1/valid/best", best, "", replica=number, definition=f"of all epochs{who}"))
    return found
