# SPDX-License-Identifier: MIT
"""Training to a target: when each model has reached it, and the mean over seeds with its interval.

Seconds are of training alone, start-up of the first steps included and validation left out. In an array they are those
of the whole array until the model was there, so that they compare with those of arrays of as many models only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .._runs.reading import RUN_FILE, read_run
from .._runs.record import Metric, RunRecord
from ..results.intervals import of_rates
from .history import MODEL, Row

__all__ = ["Arrival", "Until", "arrivals", "over_records", "sentence", "to_target"]


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
