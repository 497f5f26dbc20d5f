# SPDX-License-Identifier: MIT
"""The record of a training run, which `results.load` and `report` read, and of one to a target: when each model has
reached it.

Seconds to a target are of training alone, start-up of the first steps included and validation left out. In an array
they are those of the whole array until the model was there, so that they compare with those of arrays of as many models
only.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._runs import facts
from .._runs.rates import RateInterval, Sample, Steps, interval, rate
from .._runs.reading import RUN_FILE, read_run
from .._runs.record import Metric, Moment, RunRecord, Samples, Verdict, new_id
from ..results.intervals import of_rates
from .array import ExperimentArray
from .array_stepper import Speedup
from .experiment import Experiment
from .history import MODEL, Row
from .processes import Processes


@dataclass(frozen=True)
class Until:
    """A target of a run, after which it ends.

    Attributes:
        metric: name of a measure of validation.
        better: `more` or `less`.
        target: value to reach.
    """

    metric: str
    better: str
    target: float

    def __str__(self) -> str:
        return f"{self.metric} {'≥' if self.better == 'more' else '≤'} {self.target:g}"

    def reached(self, row: Row) -> bool:
        """True if an epoch's validation is as good as the target, or better; what is NaN is not."""
        value = row.get(f"{self.metric}/valid", math.nan)
        return value >= self.target if self.better == "more" else value <= self.target


class Arrival(NamedTuple):
    """Cost of a model to its target: seconds of training, and steps."""

    seconds: float
    steps: int


def arrivals(until: Until, history: Sequence[Row]) -> dict[int, Arrival]:
    """Return the arrival of each model that has reached the target, by its number; 0 where there is one model."""
    seconds: dict[int, float] = {}
    found: dict[int, Arrival] = {}
    for row in history:
        model = int(row.get(MODEL, 0))
        seconds[model] = seconds.get(model, 0.0) + row["seconds/train"]
        if model not in found and until.reached(row):
            found[model] = Arrival(seconds[model], int(row["step"]))
    return found


def to_target(
    until: Until, found: Mapping[int, Arrival], models: int, batch_size: int, item: str = "samples"
) -> list[Metric]:
    """Seconds and samples of each model that was there, and their means over the seeds, if all were.

    Args:
        until: the target.
        found: arrivals, by the model's number.
        models: number of models of the run.
        batch_size: samples of a step of one model.
        item: name of the samples, in the plural.
    """
    what = f"of training to {until}, without validation"
    metrics = []
    for name, unit in (("seconds", "s"), (item, item)):
        values = [each.seconds if name == "seconds" else float(each.steps * batch_size) for each in found.values()]
        if len(found) == models:  # a mean over those alone that were there would be too good
            metrics.append(_mean(f"{name} to target", values, unit, f"{name} {what}"))
        if models > 1:
            metrics += [
                Metric(f"{name} to target", value, unit, replica=model, definition=f"{name} {what}")
                for model, value in zip(found, values, strict=True)
            ]
    return metrics


def _mean(name: str, values: Sequence[float], unit: str, definition: str) -> Metric:
    found = of_rates(values)
    if math.isnan(found.low):
        return Metric(name, found.mean, unit, definition=definition)
    return Metric(
        name, found.mean, unit, found.low, found.high, definition=f"{definition}, mean of {len(values)} seeds"
    )


def sentence(record: RunRecord) -> str:
    """Say what a run needed to its target, or how many of its models were there; empty for a run without one."""
    until = record.details.get("until")
    if until is None:
        return ""
    metrics = [each for each in record.metrics if each.replica is None and each.name.endswith(" to target")]
    return _told(Until(until["metric"], until["better"], until["target"]), metrics, len(until["reached"]), record.B)


def over_records(folder: Path) -> str:
    """Say the same of the runs below a folder, one for each seed; empty if they have no target in common."""
    records = [read_run(path) for path in sorted(folder.glob(f"*/{RUN_FILE}"))]
    wanted = {tuple((key, record.details.get("until", {}).get(key)) for key in _OWN) for record in records}
    if len(wanted) != 1 or None in (own := dict(wanted.pop())).values():
        return ""
    reached = [record for record in records if record.details["until"]["reached"]]
    of: dict[str, list[Metric]] = {}
    for record in reached:
        for each in record.metrics:
            if each.name.endswith(" to target"):
                of.setdefault(each.name, []).append(each)
    means = [_mean(name, [one.value for one in own], own[0].unit, own[0].definition) for name, own in of.items()]
    return _told(Until(**own), means, len(reached), len(records))


_OWN = ("metric", "better", "target")


def _told(until: Until, metrics: Sequence[Metric], reached: int, models: int) -> str:
    if reached < models:
        return f"{until}: reached by {reached} of {models} seeds" if models > 1 else f"{until}: not reached"
    together = models > 1 and all(
        each.low is not None and each.high is not None and math.isclose(each.low, each.high) for each in metrics
    )
    parts = []
    for each in metrics:
        between = "" if each.low is None or together else f" ({each.low:.4g} to {each.high:.4g})"
        parts.append(f"{each.value:.4g} {each.unit}{between}")
    over = f", means of {models} seeds with 95 % intervals" if models > 1 else ""
    over = f", by all {models} seeds at the same check, so there is no interval" if together else over
    return f"{until}: reached after {' and '.join(parts)}{over}"


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
