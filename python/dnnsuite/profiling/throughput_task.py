# SPDX-License-Identifier: MIT
"""A worker's task that times a job's steps and nothing else, in turns with those of other batch sizes."""

from __future__ import annotations

import math
import os
from contextlib import closing
from typing import Any

from .._runs.samples import write_samples
from .._runs.spec import WorkerSpec
from .._runs.turn_task import TurnTaker
from .._runs.worker import Siblings
from ..workflow.clocks import clock_for


def rate(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    """Time a job's steps, the wait for data included; `samples.csv` goes to the spec's directory.

    `spec.details` are: `cpus` to run on, `warm_up` (first blocks that do not count).

    Returns:
        {unit, items_per_step, provenance, finite}.
    """
    from .. import jobs

    if cpus := spec.details.get("cpus"):
        os.sched_setaffinity(0, cpus)
    config = jobs.JobConfig.from_dict(spec.config)
    with closing(jobs.get(spec.job)(config)) as job:
        job.setup()
        turns = TurnTaker(job, lambda steps: clock_for(config.device, 1, steps))
        for _ in turns.obey(siblings, spec.details.get("alone", ())):
            pass  # there are no other orders
        write_samples(spec.folder, turns.samples(spec.details["warm_up"]))
        return {
            "unit": job.unit,
            "items_per_step": job.items_per_step,
            "provenance": job.provenance(),
            "finite": all(math.isfinite(loss) for loss in job.losses()),
        }
