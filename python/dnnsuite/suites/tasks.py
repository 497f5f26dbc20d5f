# SPDX-License-Identifier: MIT
"""The task of a suite's workers: one copy of a job, measured by the suite's method.

Writes `samples.csv` and `report.json` into the worker's directory, and what the original suite printed to its
standard output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from .. import timing
from .._files import write_text
from .._lazy import torch
from .._runs.failures import NotFinite
from .._runs.rates import write_samples
from .._runs.record import MISSED
from .._runs.spec import WorkerSpec
from .._runs.worker import Siblings, leads
from ._method import Observations, check_training, environment, figures, fingerprints, hashes, observe, samples
from ._records import RULE, eta_line, header, report_json, seed_report
from .mila import unit_of

if TYPE_CHECKING:
    from ..jobs import Job

Result = dict[str, Any]

_FEWEST_LOADED = 4  # observations with a loader in the loop


def measure(spec: WorkerSpec, siblings: Siblings) -> Result:
    """Set the job up, time it when all copies are ready, write its files.

    `spec.details` are: name, repeat, number, arguments, device_uuids, about, launched_ns, and with_loader (measure it
    a second time with a loader in the timed loop, where the job has one) and conditions (for the original's report).
    """
    from .. import jobs

    order = spec.details
    repeat, arguments = order["repeat"], order["arguments"]
    kind = jobs.get(spec.job)
    digests = hashes(kind, arguments)
    if leads():
        print(header(arguments), flush=True)
    if spec.processes > 1:  # the share's variables count the threads of all of them
        torch.set_num_threads(spec.config["threads"])
    with closing(kind(jobs.JobConfig.from_dict(spec.config))) as job:
        job.setup()
        job.settle_loss_scale()
        setup_s = (timing.now_ns() - order["launched_ns"]) * 1e-9  # interpreter and imports too
        before = fingerprints(job)
        siblings.wait()
        seen = observe(job, repeat, order["number"], _tell(repeat) if leads() else _silent)
        trained = check_training(job, before, seen)
        loaded, from_files = _with_loader(job, order, repeat)
        if not leads():  # what is measured is the same for all processes of a job: the first tells it
            return {}
        found = {**_described(job, seen, trained, order), "setup_s": setup_s, "hashes": digests}
        found["loaded"] = None if loaded is None else {**figures(loaded, job.items_per_step), "data": from_files}
        # The original's figures had the loader in them, where it had one.
        conditions = {**order["conditions"], "feed": job.feed if loaded is None else "loader"}
        _write(spec, job, seen, loaded or seen, found["metrics"], digests["source"], conditions)
        return found


def _described(job: Job, seen: Observations, trained: Mapping[str, Any], order: Mapping[str, Any]) -> Result:
    """Figures of the observations, and what the job says of itself."""
    found = figures(seen, job.items_per_step)
    metrics = {name: float(value) for name, value in job.metrics().items()}
    quality = job.quality(order["preset"], metrics)
    judged = {quality["metric"]: quality["value"]} if quality else {}
    if bad := next((name for name, value in {**metrics, **judged}.items() if math.isnan(value)), None):
        raise NotFinite(f"the metric {bad!r} on held-out data is NaN")
    missed = [MISSED] if quality and not quality["reached"] else []
    return {
        **found,
        "flags": [*found["flags"], *trained["flags"], *missed],
        "quality": quality,
        "training": trained,
        "feed": job.feed,
        "unit": job.unit,
        "metrics": metrics,
        "items_per_batch": job.items_per_step,
        "seed_unit": unit_of(job.name, job.unit),
        "provenance": job.provenance(),
        "environment": environment(job, order["device_uuids"]),
        "window_s": sum(seen.seconds),
    }


def _tell(repeat: int) -> Any:
    return lambda index, seen: print(eta_line(index, repeat, seen), flush=True)


def _silent(index: int, seen: Observations) -> None:
    """Tell nothing."""


def _with_loader(job: Job, order: Mapping[str, Any], repeat: int) -> tuple[Observations | None, dict[str, Any] | None]:
    """Return (observations with a loader in the timed loop, where its files come from), half as many as without; or
    Nones."""
    if job.feed == "loader" or not order.get("with_loader"):
        return None, None
    origin = job.with_loader()
    if origin is None:
        return None, None
    return observe(job, max(_FEWEST_LOADED, repeat // 2), order["number"]), origin.record()


def _write(
    spec: WorkerSpec,
    job: Job,
    seen: Observations,
    reported: Observations,
    metrics: dict[str, float],
    source: str,
    conditions: Mapping[str, Any],
) -> None:
    """Write `samples.csv` of `seen`, and the original's report of `reported`."""
    write_samples(spec.folder, samples(seen, job.items_per_step))
    seed_items = job.items_per_step / unit_of(job.name, job.unit)["items"]
    order = spec.details
    report = seed_report(
        order["name"],
        order["arguments"],
        source[:10],
        reported,
        seed_items,
        metrics,
        {**order["about"], "dnnsuite": conditions},
    )
    text = report_json(report)
    print(RULE, text, RULE, sep="\n", flush=True)
    write_text(spec.folder / "report.json", report_json([report]) + "\n")
