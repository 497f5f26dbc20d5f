# SPDX-License-Identifier: MIT
"""Workers' tasks: one observes a job, its steps under the profiler's instruments, in windows; one times the job's steps
and nothing else, in turns with those of other batch sizes.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from .._runs.rates import write_samples
from .._runs.spec import WorkerSpec
from .._runs.worker import Siblings, TurnTaker
from ..timing import now_ns
from ..workflow.tasks import clock_for

if TYPE_CHECKING:
    from ..profiler import Schedule
    from ..profiler.phases import PhasesInstrument


_MOST_WINDOWS = 4


def windows_of(start_iteration: int, profile_iterations: int) -> tuple[Schedule, int]:
    """Return (schedule, steps in all) that keep `profile_iterations` iterations from `start_iteration` on.

    They are split into up to 4 equal windows with as many steps without instruments before, between and after, which
    is what the overhead and the rate are measured on.

    Raises:
        InvalidArgument: a negative start, or no iteration to keep.
    """
    from ..profiler import Schedule, schedule

    schedule(start_iteration=start_iteration, profile_iterations=profile_iterations)  # refuses what means nothing
    windows = max(n for n in range(1, _MOST_WINDOWS + 1) if profile_iterations % n == 0)
    active = profile_iterations // windows
    warmup = min(1, start_iteration)
    wait = min(active, start_iteration - warmup)
    made = Schedule(start_iteration - warmup - wait, wait, warmup, active, windows)
    return made, start_iteration - warmup - wait + windows * (wait + warmup + active) + active


def observe(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    """Run a job under the profiler, as a worker's task; files go to the spec's directory.

    `spec.details` are: metrics, start_iteration, profile_iterations.

    Returns:
        {profile, provenance, window}: the profile, the source of the data, and the time of the window.
    """
    from .. import jobs, profiler
    from ..profiler.instrument import choose
    from ..profiler.memory import MemoryInstrument
    from ..profiler.phases import PhasesInstrument

    order = spec.details
    job: Any = jobs.get(spec.job)(jobs.JobConfig.from_dict(spec.config))
    config, directory = job.config, spec.folder
    made, steps = windows_of(order["start_iteration"], order["profile_iterations"])
    about = {
        "job": spec.job,
        **{name: getattr(config, name) for name in ("batch_size", "B", "device", "precision")},
        "items_per_step": job.items_per_step,
        "unit": job.unit,
    }
    # A hook in modules would keep the runner of an array from replaying its steps.
    phases = PhasesInstrument(modules=config.B == 0)
    instruments: list[Any] = [phases]
    if "memory" in {name for name, _ in choose(order["metrics"])[0]}:
        instruments.append(MemoryInstrument(config.models, modules=config.B == 0))
    with closing(job):
        job.setup()
        siblings.wait()
        for name in ("batch", "_batch"):  # getting the next batch counts as the phase `data`
            if callable(get := getattr(job, name, None)):
                setattr(job, name, _in_phase(get, phases))
        with profiler.profile(
            order["metrics"],
            schedule=made,
            instruments=instruments,
            synchronize=job.synchronize,
            device=config.device,
            about=about,
        ) as p:
            start_ns = now_ns()
            for index in range(steps):
                job.step()
                p.step()
                (directory / "progress.txt").write_text(f"{index + 1} {steps}")  # for the process that waits
            window = {"start_ns": start_ns, "stop_ns": now_ns()}
        about["losses"] = job.losses()
        p.save(directory)
        return {"profile": p.record(), "provenance": job.provenance(), "window": window}


def _in_phase(get: Callable[..., Any], phases: PhasesInstrument) -> Callable[..., Any]:
    @functools.wraps(get)
    def batch(*args: Any, **kwargs: Any) -> Any:
        if not phases.running:
            return get(*args, **kwargs)
        with phases.phase("data"):
            return get(*args, **kwargs)

    return batch


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
