# SPDX-License-Identifier: MIT
"""The task of a suite's workers: one copy of a job, measured by the suite's method.

Writes `samples.csv` and `report.json` into the worker's directory, and what the original suite printed to its
standard output.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from .. import timing
from .._files import write_text
from .._runs.samples import write_samples
from .._runs.spec import WorkerSpec
from .._runs.worker import Siblings, leads
from ._environment import environment, hashes
from ._figures import figures, samples
from ._method import Observations, observe
from ._seed_format import RULE, eta_line, header, report_json, seed_report

if TYPE_CHECKING:
    from ..jobs import Training

__all__ = ["measure"]

Result = dict[str, Any]


def measure(spec: WorkerSpec, siblings: Siblings) -> Result:
    """Set the job up, time it when all copies are ready, write its files.

    `spec.details` are: name, repeat, number, arguments, device_uuids, about, launched_ns.
    """
    from .. import jobs

    order = spec.details
    repeat, arguments = order["repeat"], order["arguments"]
    Job = jobs.get(spec.job, jobs.Training)
    digests = hashes(Job, arguments)
    if leads():
        print(header(arguments), flush=True)
    if spec.processes > 1:  # the share's variables count the threads of all of them
        import torch

        torch.set_num_threads(spec.config["threads"])
    with closing(Job(jobs.JobConfig.from_dict(spec.config))) as job:
        job.setup()
        setup_s = (timing.now_ns() - order["launched_ns"]) * 1e-9  # interpreter and imports too
        siblings.wait()
        seen = observe(job, repeat, order["number"], _tell(repeat) if leads() else _silent)
        if not leads():  # what is measured is the same for all processes of a job: the first tells it
            return {}
        about = environment(job, order["device_uuids"])
        metrics = {name: float(value) for name, value in job.metrics().items()}
        found = figures(seen, job.items_per_step)
        _write(spec, job, seen, metrics, digests["source"])
        return {
            **found,
            "unit": job.unit,
            "metrics": metrics,
            "items_per_batch": job.items_per_step,
            "seed_unit": job.seed_unit._asdict(),
            "setup_s": setup_s,
            "provenance": job.provenance(),
            "environment": about,
            "hashes": digests,
            "window_s": sum(seen.seconds),
        }


def _tell(repeat: int) -> Any:
    return lambda index, seen: print(eta_line(index, repeat, seen), flush=True)


def _silent(index: int, seen: Observations) -> None:
    """Tells nothing."""


def _write(
    spec: WorkerSpec, job: Training, seen: Observations, metrics: dict[str, float], source: str
) -> None:
    write_samples(spec.folder, samples(seen, job.items_per_step))
    seed_items = job.items_per_step / job.seed_unit.items
    order = spec.details
    report = seed_report(
        order["name"], order["arguments"], source[:10], seen, seed_items, metrics, order["about"]
    )
    text = report_json(report)
    print(RULE, text, RULE, sep="\n", flush=True)
    write_text(spec.folder / "report.json", report_json([report]) + "\n")
