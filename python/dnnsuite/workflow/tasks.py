# SPDX-License-Identifier: MIT
"""Tasks of a workflow's workers: rate a job, try it, or compare its fused array with separate models. The clocks of a
rate date each step, shared by all processes of a machine, without a synchronise in the loop.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import timing
from .._files import write_text
from .._lazy import torch
from .._runs.failures import NotFinite
from .._runs.rates import Steps, write_samples
from .._runs.spec import WorkerSpec
from .._runs.worker import Clock as Clock
from .._runs.worker import Siblings, TurnTaker

if TYPE_CHECKING:
    from ..jobs import Job

# Share of an epoch spent waiting for steps that had returned already, above which the job counts as
# asynchronous.
_ASYNCHRONOUS = 0.02


class HostClock:
    """Clock for the CPU: reads the time at which `step()` returns.

    A job whose steps go on in threads of its own is recognised by the time its `synchronize` takes; the
    last step of an epoch always ends when the job is synchronised.
    """

    def __init__(self, epochs: int, iters_per_epoch: int) -> None:
        self._timer = timing.StepTimer(epochs * iters_per_epoch)
        self._iters = iters_per_epoch
        self._synchronised_ns: list[int] = []

    def begin_epoch(self) -> None:
        pass

    def begin_step(self) -> None:
        self._timer.start()

    def end_step(self, items: int) -> None:
        self._timer.stop(items)

    def end_epoch(self) -> None:
        self._synchronised_ns.append(timing.now_ns())

    @property
    def asynchronous(self) -> bool:
        """True if steps went on after they had returned: then only whole epochs are dated exactly."""
        starts, stops = (self._timer.starts_ns[:: self._iters], self._timer.stops_ns[self._iters - 1 :: self._iters])
        ends = np.array(self._synchronised_ns)
        return bool(np.any((ends - stops) > _ASYNCHRONOUS * (ends - starts)))

    def steps(self) -> Steps:
        starts, stops = np.array(self._timer.starts_ns), np.array(self._timer.stops_ns)
        stops[self._iters - 1 :: self._iters] = self._synchronised_ns
        epochs = np.arange(len(stops), dtype=np.int64) // self._iters
        return Steps(starts, stops, np.array(self._timer.items, dtype=np.int64), epochs)


class CudaClock:
    """Clock for CUDA, where `step()` returns early: an event after each step, resolved when the epoch is
    synchronised.

    The device is idle at the start of an epoch, so host time and the first event coincide there; every step
    of the epoch is dated from it. `torch.cuda.Event` resolves about half a microsecond. Not run on a GPU yet.
    """

    asynchronous = False  # the device's own times are used, which are exact

    def __init__(self, epochs: int, iters_per_epoch: int, cuda: Any = None) -> None:
        if cuda is None:
            cuda = torch.cuda
        self._cuda = cuda
        # One epoch's worth, made before the loop and used again in every epoch.
        self._events = [cuda.Event(enable_timing=True) for _ in range(iters_per_epoch + 1)]
        self._items: list[int] = []
        self._of_epoch: list[int] = []
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._epoch = 0
        self._recorded = 0
        self._epoch_start_ns = 0

    def begin_epoch(self) -> None:
        self._cuda.synchronize()
        self._recorded = 0
        self._epoch_start_ns = timing.now_ns()
        self._events[0].record()

    def begin_step(self) -> None:
        pass

    def end_step(self, items: int) -> None:
        self._recorded += 1
        self._events[self._recorded].record()
        self._items.append(items)
        self._of_epoch.append(self._epoch)

    def end_epoch(self) -> None:
        """Date the steps of the epoch. Call after the job has synchronised."""
        previous = self._epoch_start_ns
        for event in self._events[1 : self._recorded + 1]:
            stop = self._epoch_start_ns + round(self._events[0].elapsed_time(event) * 1e6)  # ms → ns
            self._starts.append(previous)
            self._stops.append(stop)
            previous = stop
        self._epoch += 1

    def steps(self) -> Steps:
        columns = (self._starts, self._stops, self._items, self._of_epoch)
        starts, stops, items, epochs = (np.array(column, dtype=np.int64) for column in columns)
        return Steps(starts, stops, items, epochs)


def clock_for(device: str, epochs: int, iters_per_epoch: int) -> Clock:
    """Return the clock for a device type."""
    kind = CudaClock if device.startswith("cuda") else HostClock
    return kind(epochs, iters_per_epoch)


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
