# SPDX-License-Identifier: MIT
"""Tasks of a workflow's workers: rate a job, try it, or compare its fused array with separate models."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import timing
from .._files import write_text
from .._runs.failures import NotFinite
from .._runs.rates import write_samples
from .._runs.spec import WorkerSpec
from .._runs.worker import Siblings, TurnTaker
from .clocks import clock_for

if TYPE_CHECKING:
    from ..jobs import Job

Result = dict[str, Any]

_EQUALITY_BATCH = 4  # samples tell as much of equality as more do, and a CPU's time is the user's
_HELD_BATCHES = 16  # on the device, while the loader is left out


def rate(spec: WorkerSpec, siblings: Siblings) -> Result:
    """Train in turns with other workers; write `samples.csv` and `timing.csv`.

    `spec.details`: `cpus` to run on, rounds of `warm_up`, and `epochs` and `iters_per_epoch` of a worker that was
    started by hand.
    """
    if cpus := spec.details.get("cpus"):
        os.sched_setaffinity(0, cpus)
    with closing(_made(spec)) as job:
        started_ns = timing.now_ns()
        job.setup()
        setup_s = (timing.now_ns() - started_ns) * 1e-9
        losses: list[float] = []

        def after(order: Mapping[str, Any]) -> None:
            losses[:] = _finite_losses(job, order["epoch"])
            if order.get("ends"):
                job.end_epoch()

        turns = TurnTaker(job, lambda steps: clock_for(job.config.device, 1, steps), after)
        alone = [
            {"do": "block", "epoch": epoch, "steps": spec.details["iters_per_epoch"], "ends": True}
            for epoch in range(spec.details["epochs"])
        ]
        held = None
        for order in turns.obey(siblings, alone):
            if order["do"] == "held":
                held = _without_loader(job, turns.steps_in(order))
        write_samples(spec.folder, turns.samples(spec.details.get("warm_up", 0)))
        _write_timing(spec.folder / "timing.csv", turns.epochs_s())
        return {
            "losses": losses, "items_per_step": job.items_per_step, "setup_s": setup_s,
            "asynchronous": turns.asynchronous, "on_device": held, "cpu_s": turns.cpu_s,
            "audits_passed": getattr(job, "audits_passed", 0), "provenance": job.provenance(),
        }  # fmt: skip


def _without_loader(job: Job, iters: int) -> dict[str, Any] | None:
    """One more epoch on batches that lie on the device; None if the job cannot hold them."""
    if not job.hold_batches(min(iters, _HELD_BATCHES)):
        return None
    turns = TurnTaker(job, lambda steps: clock_for(job.config.device, 1, steps))
    turns.block({"epoch": 0, "steps": iters})
    (_, steps), (cpu_s,) = turns.blocks[0], turns.cpu_s
    start_ns, stop_ns = int(steps.starts_ns[0]), int(steps.stops_ns[-1])
    return {"start_ns": start_ns, "stop_ns": stop_ns, "items": iters * job.items_per_step, "cpu_s": cpu_s}


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
    if config.device == "cpu":
        config = replace(config, batch_size=min(config.batch_size, _EQUALITY_BATCH))
    return {"equality": jobs.get(spec.job, swept=True).check_equality(config, steps=spec.details["steps"])}


def _made(spec: WorkerSpec) -> Job:
    from .. import jobs

    made: Job = jobs.get(spec.job, swept=True)(jobs.JobConfig.from_dict(spec.config))
    return made


def _finite_losses(job: Job, epoch: int) -> list[float]:
    losses = [float(loss) for loss in job.losses()]
    bad = [i for i, loss in enumerate(losses) if not math.isfinite(loss)]
    if bad:
        raise NotFinite(f"loss of model {bad[0]} is {losses[bad[0]]} after epoch {epoch}")
    return losses


def _write_timing(path: Path, epochs: list[tuple[float, float, int]]) -> None:
    """HFTA's file: one line per epoch, wall-clock seconds since 1970, samples counted over all models."""
    rows = [f"{i},{i},{start:.6f},{stop:.6f},{items}" for i, (start, stop, items) in enumerate(epochs)]
    write_text(path, "\n".join([",epoch,epoch_start,epoch_stop,num_samples", *rows, ""]))
