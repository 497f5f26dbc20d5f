# SPDX-License-Identifier: MIT
"""A worker's task that times a job's steps and nothing else: a fixed number of them, or until the rate is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from .. import timing
from .._runs.rates import Steps, interval, warmup
from .._runs.rates import rate as items_per_second
from .._runs.samples import Sample, write_samples
from .._runs.spec import WorkerSpec
from .._runs.worker import Siblings

__all__ = ["rate"]

_OBSERVATION_S = 0.05  # an observation waits for the device once: rarely enough to cost nothing
_MOST_STEPS = 1000  # of an observation
_FIRST_LOOK = (40, 80)  # observations before the interval is looked at, the least and the most
_LOOKS = 4  # of them fit into the budget at least


def rate(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    """Time a job's steps, the wait for data included, as a worker's task; `samples.csv` goes to the spec's
    directory.

    `spec.details` are: stop_iteration (None: until converged), start_iteration, target (of the 95 % interval's half
    width, relative), budget_s.

    Returns:
        {unit, items_per_step, provenance, status, reason, finite}; `status` is converged, noisy,
        timeout or fixed.
    """
    from .. import jobs

    order, config = spec.details, jobs.JobConfig.from_dict(spec.config)
    with closing(jobs.get(spec.job)(config)) as job:
        job.setup()
        siblings.wait()
        observer = _Observer(job)
        if order["stop_iteration"] is None:
            samples, status, reason = _until_known(observer, order)
        else:
            samples, status, reason = _fixed(observer, order)
        write_samples(spec.folder, samples)
        return {
            "unit": job.unit,
            "items_per_step": job.items_per_step,
            "provenance": job.provenance(),
            "status_of_rate": status,
            "reason": reason,
            "finite": all(math.isfinite(loss) for loss in job.losses()),
        }


class _Observer:
    """Stopwatch for observations of a job's steps, with a wait for the device at the end of each."""

    def __init__(self, job: Any) -> None:
        self._job, self._items = job, float(job.items_per_step)
        self.samples: list[Sample] = []
        self.waits = job.config.device != "cpu"
        job.synchronize()
        self._stop_ns = timing.now_ns()

    def observe(self, steps: int, phase: str = "train") -> float:
        """Train `steps` steps, and return their seconds, counted from the end of the observation before."""
        start_ns = self._stop_ns
        for _ in range(steps):
            self._job.step()
        self._job.synchronize()
        self._stop_ns = max(timing.now_ns(), start_ns + 1)
        self.samples.append(Sample(0, start_ns, self._stop_ns, steps * self._items, phase))
        return (self._stop_ns - start_ns) * 1e-9


def _fixed(observer: _Observer, order: Mapping[str, Any]) -> tuple[list[Sample], str, str]:
    """Steps up to `stop_iteration`; those before `start_iteration` are warm-up. On a GPU ten are timed together."""
    start, stop = order["start_iteration"], order["stop_iteration"]
    number = 10 if observer.waits else 1
    for first, last, phase in ((0, start, "warmup"), (start, stop, "train")):
        for at in range(first, last, number):
            observer.observe(min(number, last - at), phase)
    return observer.samples, "fixed", f"iterations {start + 1} to {stop}"


def _until_known(observer: _Observer, order: Mapping[str, Any]) -> tuple[list[Sample], str, str]:
    """Observations until the mean is known to `target`, or the budget is spent; those before a steady state are cut."""
    began_ns = timing.now_ns()
    observer.observe(1, "warmup")  # everything is made in the first step
    took_s = observer.observe(1, "warmup")
    budget_s = order["budget_s"]
    least, most = _FIRST_LOOK
    number = max(1, min(_MOST_STEPS, round(min(_OBSERVATION_S, budget_s / _LOOKS / least) / took_s)))
    first = max(least, min(most, int(budget_s / _LOOKS / (number * took_s))))
    rule = timing.Precision(order["target"], first, budget_s)
    status = "running"
    while status == "running":
        took_s = observer.observe(number)
        status = rule.add(took_s, (timing.now_ns() - began_ns) * 1e-9)
    found = warmup(rule.seconds)
    cut = 2 + (found["truncated"] if found["steady"] else 0)
    status, reason = rule.status, rule.reason
    until_ns = began_ns + round(budget_s * 1e9)
    if status == "converged" and not _confirmed(observer, cut, number, order["target"], until_ns):
        status, reason = "timeout", f"the time is up after {len(observer.samples) - 2} samples"
    samples = [each._replace(phase="warmup") if i < cut else each for i, each in enumerate(observer.samples)]
    return samples, status, reason


def _confirmed(observer: _Observer, cut: int, number: int, target: float, until_ns: int) -> bool:
    """Observe on until the record's own interval is within `target`, too; False where the time is up before.

    The rule takes pieces of the run as independent; the record does not. Looks are few, as each is a chance to stop
    where the interval happens to be narrow.
    """
    look = 0
    while timing.now_ns() < until_ns:
        if len(observer.samples) >= look:
            if _known(observer.samples[cut:], target):
                return True
            look = len(observer.samples) * 5 // 4 + 1
        observer.observe(number)
    return _known(observer.samples[cut:], target)


def _known(samples: Sequence[Sample], target: float) -> bool:
    """True if the 95 % interval of the samples' rate is within `target` of it."""
    starts = np.array([sample.start_ns for sample in samples], np.int64)
    stops = np.array([sample.stop_ns for sample in samples], np.int64)
    items = np.rint([sample.items for sample in samples]).astype(np.int64)
    steps = [Steps(starts, stops, items, np.zeros_like(starts))]
    found = interval(steps)
    if found.low is None or found.high is None:
        return False
    return found.high - found.low <= 2 * target * items_per_second(steps)
