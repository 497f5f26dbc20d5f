# SPDX-License-Identifier: MIT
"""Tasks of a workflow's workers: rate a job, try it, or compare its fused array with separate models."""

from __future__ import annotations

import itertools
import math
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import timing
from .._files import write_text
from .._runs.failures import NotFinite
from .._runs.rates import Steps
from .._runs.samples import Sample, write_samples
from .._runs.spec import WorkerSpec
from .._runs.worker import Siblings
from .clocks import Clock, clock_for

if TYPE_CHECKING:
    from ..jobs import Job

__all__ = ["dry_run", "equality", "rate"]

Result = dict[str, Any]

_HELD_BATCHES = 16  # on the device, while the loader is left out


def rate(spec: WorkerSpec, siblings: Siblings) -> Result:
    """Run epochs × iterations, timed, and write `samples.csv` and `timing.csv`."""
    epochs, iters = spec.details["epochs"], spec.details["iters_per_epoch"]
    with closing(_made(spec)) as job:
        started_ns = timing.now_ns()
        job.setup()
        setup_s = (timing.now_ns() - started_ns) * 1e-9
        clock = clock_for(job.config.device, epochs, iters)
        siblings.wait()
        edges_ns, used_s = [], []
        for epoch in range(epochs):
            used_s.append(time.process_time())
            edges_ns.append(_epoch(job, clock, iters))
            losses = _finite_losses(job, epoch)
        used_s.append(time.process_time())
        write_samples(spec.folder, _samples(clock.steps(), epochs))
        held = _without_loader(job, iters)
        _write_timing(spec.folder / "timing.csv", edges_ns, iters * job.items_per_step, timing.now_ns())
        return {
            "losses": losses,
            "items_per_step": job.items_per_step,
            "setup_s": setup_s,
            "asynchronous": clock.asynchronous,
            "on_device": held,
            "cpu_s": [stop - start for start, stop in itertools.pairwise(used_s)],
            "audits_passed": getattr(job, "audits_passed", 0),
            "provenance": job.provenance(),
        }


def _epoch(job: Job, clock: Clock, iters: int) -> tuple[int, int]:
    """Train a timed epoch; return its start and end in nanoseconds."""
    start_ns = timing.now_ns()
    clock.begin_epoch()
    for _ in range(iters):
        clock.begin_step()
        job.step()
        clock.end_step(job.items_per_step)
    job.synchronize()
    clock.end_epoch()
    stop_ns = timing.now_ns()
    job.end_epoch()
    return start_ns, stop_ns


def _without_loader(job: Job, iters: int) -> dict[str, Any] | None:
    """One more epoch on batches that lie on the device; None if the job cannot hold them."""
    if not job.hold_batches(min(iters, _HELD_BATCHES)):
        return None
    start_ns, stop_ns = _epoch(job, clock_for(job.config.device, 1, iters), iters)
    return {"start_ns": start_ns, "stop_ns": stop_ns, "items": iters * job.items_per_step}


def dry_run(spec: WorkerSpec, siblings: Siblings) -> Result:
    """Run a few iterations at full size, to check that they work."""
    with closing(_made(spec)) as job:
        job.setup()
        siblings.wait()
        for _ in range(spec.details.get("epochs", 1)):
            for _ in range(spec.details["iters_per_epoch"]):
                job.step()
            job.synchronize()
            job.end_epoch()
        return {}


def equality(spec: WorkerSpec, siblings: Siblings) -> Result:
    """Have the job compare its fused array with separate models."""
    from .. import jobs

    siblings.wait()
    config = jobs.JobConfig.from_dict(spec.config)
    return {"equality": jobs.get(spec.job, jobs.Job).check_equality(config, steps=spec.details["steps"])}


def _made(spec: WorkerSpec) -> Job:
    from .. import jobs

    made: Job = jobs.get(spec.job, jobs.Job)(jobs.JobConfig.from_dict(spec.config))
    return made


def _finite_losses(job: Job, epoch: int) -> list[float]:
    losses = [float(loss) for loss in job.losses()]
    bad = [i for i, loss in enumerate(losses) if not math.isfinite(loss)]
    if bad:
        raise NotFinite(f"loss of model {bad[0]} is {losses[bad[0]]} after epoch {epoch}")
    return losses


def _samples(steps: Steps, epochs: int) -> list[Sample]:
    """Return the first of several epochs is warm-up."""
    columns = zip(steps.epochs, steps.starts_ns, steps.stops_ns, steps.items, strict=True)
    return [
        Sample(int(e), int(a), int(b), float(n), "warmup" if e == 0 and epochs > 1 else "train")
        for e, a, b, n in columns
    ]


def _write_timing(path: Path, edges_ns: list[tuple[int, int]], items: int, now_ns: int) -> None:
    """HFTA's file: one line per epoch, wall-clock seconds since 1970, samples counted over all models."""
    wall_minus_clock_s = time.time() - now_ns * 1e-9
    edges_s = [[edge * 1e-9 + wall_minus_clock_s for edge in edges] for edges in edges_ns]
    rows = [f"{epoch},{epoch},{start:.6f},{stop:.6f},{items}" for epoch, (start, stop) in enumerate(edges_s)]
    write_text(path, "\n".join([",epoch,epoch_start,epoch_stop,num_samples", *rows, ""]))
