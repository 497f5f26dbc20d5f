# SPDX-License-Identifier: MIT
"""The suite's method: `number` batches are timed together, `repeat` times; the device is waited for once in between.

After mila-iqia/training (2019), whose README gives the loop. Losses stay on the device until the wait. Of the
observations come a rate with its interval, the steady state, the wait for data, and checks that the job trains: its
weights change, its loss varies, its steps are not skipped. With them goes the environment of the copy: machine,
versions, device and clocks, and hashes of its job.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .. import host, timing
from .._lazy import torch
from .._runs import facts, rates
from .._runs.failures import NotFinite, NotTraining
from .._runs.rates import Sample

if TYPE_CHECKING:
    from ..jobs import Job

SKIP = 10  # observations that the original drops
LOSSES = 100  # that it keeps


def first_kept(repeat: int) -> int:
    """Number of observations that are dropped: the original's ten, but never more than half of a short run."""
    return min(SKIP, repeat // 2)


@dataclass
class Observations:
    """Observations of one job, in order; the first `skip` are warm-up. Times are of the monotonic clock.

    Attributes:
        waits_ns: time that each observation waited for data.
        watch: disturbances of each observation.
        losses: those of the last 100 batches; lowest_loss and highest_loss are of all.
    """

    number: int
    skip: int
    starts_ns: list[int] = field(default_factory=list)
    stops_ns: list[int] = field(default_factory=list)
    waits_ns: list[int] = field(default_factory=list)
    first_loss: float = math.nan
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=LOSSES))
    lowest_loss: float = math.inf
    highest_loss: float = -math.inf
    watch: timing.Contention = field(default_factory=timing.Contention)

    def add(self, start_ns: int, stop_ns: int, wait_ns: int, losses: Sequence[float]) -> None:
        """Take in an observation and the losses of its batches."""
        if not self.starts_ns:
            self.first_loss = losses[0]
        self.starts_ns.append(start_ns)
        self.stops_ns.append(stop_ns)
        self.waits_ns.append(wait_ns)
        self.losses.extend(losses)
        self.lowest_loss = min(self.lowest_loss, *losses)
        self.highest_loss = max(self.highest_loss, *losses)

    @property
    def seconds(self) -> list[float]:
        """Duration of every observation."""
        return [(stop - start) * 1e-9 for start, stop in zip(self.starts_ns, self.stops_ns, strict=True)]

    @property
    def timed(self) -> timing.RepeatNumber:
        """The same as the timing core has it: average, deviation and extremes of what is kept."""
        perf = timing.RepeatNumber(len(self.starts_ns), self.number, self.skip)
        for seconds in self.seconds:
            perf.add(seconds)
        return perf


def observe(
    job: Job, repeat: int, number: int, tell: Callable[[int, Observations], None] = lambda i, seen: None
) -> Observations:
    """Time `repeat` observations of exactly `number` batches each.

    Args:
        job: set up, with everything it starts running.
        tell: called after each observation, out of what is timed.

    Raises:
        NotFinite: a loss is NaN or infinite; the message says of which batch.
    """
    seen = Observations(number, first_kept(repeat))
    job.synchronize()
    for index in range(repeat):
        losses = []
        waited_ns = job.data_wait_ns
        with seen.watch:
            start_ns = timing.now_ns()
            for _ in range(number):
                job.step()
                losses.append(job.last_loss)
            job.synchronize()
            stop_ns = timing.now_ns()
        seen.add(start_ns, max(stop_ns, start_ns + 1), job.data_wait_ns - waited_ns, _finite(losses, index * number))
        tell(index, seen)
    return seen


def _finite(losses: list[Any], before: int) -> list[float]:
    """Return the losses' values, fetched together where they are tensors."""
    values: list[float] = losses
    if not isinstance(losses[0], float):
        values = torch.stack([loss.detach().reshape(()).float() for loss in losses]).tolist()
    for i, value in enumerate(values):
        if not math.isfinite(value):
            raise NotFinite(f"the loss of batch {before + i + 1} is {value}")
    return values


_MANY = 0.1  # share of skipped steps that a reader must know of


def fingerprints(job: Job) -> list[tuple[float, float]]:
    """Sum and norm of each weight, which an optimizer's step changes."""
    weights = job.weights() if job.trains else []
    if not weights:
        return []
    with torch.no_grad():
        return [(float(weight.sum(dtype=torch.float64)), float(weight.norm(dtype=torch.float64))) for weight in weights]


def check_training(job: Job, before: list[tuple[float, float]], seen: Observations) -> dict[str, Any]:
    """Record the training: weights, changed weights, share of skipped steps, flags.

    Args:
        before: fingerprints of the weights before the observations.

    Raises:
        NotTraining: no weight changed, or every batch had the same loss.
    """
    tried = job.steps_tried
    skipped = job.steps_skipped / tried if tried else 0.0
    changed = sum(now != then for now, then in zip(fingerprints(job), before, strict=True))
    if before and not changed:
        why = f"; the loss scale left out {job.steps_skipped} of {tried} steps" if job.steps_skipped else ""
        raise NotTraining(f"none of its {len(before)} weights changed in {_batches(seen)} batches{why}")
    if job.trains and _batches(seen) > 1 and seen.lowest_loss == seen.highest_loss:
        raise NotTraining(f"the loss of all {_batches(seen)} batches is {seen.lowest_loss}")
    return {
        "weights": len(before),
        "changed": changed,
        "skipped_steps": skipped,
        "flags": ["many steps skipped for the loss scale"] if skipped > _MANY else [],
    }


def _batches(seen: Observations) -> int:
    return len(seen.starts_ns) * seen.number


Floats = npt.NDArray[np.float64]

_FEWEST = 20  # observations of which MSER-5 says anything
_KINDS = ("throttled", "contended")  # what timing.Contention tells apart
_DISTURBED = 0.25  # of the kept observations: more than that, and it is no accident
_TOLERATED = 0.05  # how far the rate of the last half may be from that of all that is kept


def figures(seen: Observations, items_per_batch: float) -> dict[str, Any]:
    """`rate_per_s`, its 95 % interval, `steady`, `data_wait_share`, `losses` and `flags` of a run.

    The rate is items over the wall time of the kept observations, the wait for data included. Its interval is
    None where they are too few, or too much alike one after the other: `no_interval` tells which.
    """
    kept = np.array(seen.seconds[seen.skip :])
    items = np.full(len(kept), items_per_batch * seen.number)
    between = timing.rate(items, kept)
    rate = float(items.sum() / kept.sum())
    steady = _steady(np.array(seen.seconds), seen.skip)
    return {
        "rate_per_s": rate,
        "rate_interval_per_s": None if between.why else [between.low, between.high],
        "no_interval": between.why,
        "dropped": seen.skip,
        "kept": len(kept),
        "steady": steady,
        "data_wait_share": sum(seen.waits_ns[seen.skip :]) * 1e-9 / float(kept.sum()),
        "losses": {"first": seen.first_loss, "last": seen.losses[-1]},
        "contention": _contention(seen),
        "flags": _flags(seen, steady),
    }


def _steady(seconds: Floats, skip: int) -> dict[str, Any]:
    """MSER-5 of all observations, and a comparison of the kept ones with their last half.

    `steady` is None where there are too few for a verdict.
    """
    warmup = rates.warmup(seconds)
    kept = seconds[skip:]
    late = kept[len(kept) // 2 :]
    drift = float(kept.mean() / late.mean() - 1)
    said = {**warmup, "method": "MSER-5, and the kept against their last half", "last_half": drift}
    if len(seconds) < _FEWEST:
        return {**said, "steady": None, "reason": f"{len(seconds)} observations are too few for a verdict"}
    if abs(drift) > _TOLERATED:
        reason = f"the last half of the kept observations is {abs(drift):.1%} {'faster' if drift > 0 else 'slower'}"
        return {**said, "steady": False, "reason": reason}
    return {**said, "reason": warmup["reason"].removeprefix("no steady state: ")}


def _flags(seen: Observations, steady: dict[str, Any]) -> list[str]:
    """Warnings to a reader of the rate, in words that are the same for every run; the record has the details."""
    disturbed = _disturbed(seen)[seen.skip :]
    often = _DISTURBED * len(disturbed)
    flags = ["no steady state"] if steady["steady"] is False else []
    return flags + [kind for kind in _KINDS if sum(kind in each for each in disturbed) > often]


def _disturbed(seen: Observations) -> list[str]:
    """Return the disturbance of each observation: throttled, contended, both joined by +, or empty."""
    columns = seen.watch.columns()
    return ["+".join(kind for kind in _KINDS if columns[kind][i]) for i in range(len(seen.watch))]


def _contention(seen: Observations) -> dict[str, Any] | None:
    """Return the machine during what is kept."""
    if not len(seen.watch):
        return None
    columns = {name: values[seen.skip :] for name, values in seen.watch.columns().items()}
    return {
        "clock_ghz": [float(columns["clock_ghz"].min()), float(columns["clock_ghz"].max())],
        "steal_s": float(columns["steal_s"].sum()),
        "pressure_s": float(columns["pressure_s"].sum()),
        "involuntary_switches": int(columns["involuntary_switches"].sum()),
        "throttled": int(columns["throttled"].sum()),
        "contended": int(columns["contended"].sum()),
    }


def samples(seen: Observations, items_per_batch: float) -> list[Sample]:
    """Every observation, kept or not."""
    disturbed = _disturbed(seen) or [""] * len(seen.starts_ns)
    items = items_per_batch * seen.number
    return [
        Sample(0, start, stop, items, "warmup" if i < seen.skip else "train", flag)
        for i, (start, stop, flag) in enumerate(zip(seen.starts_ns, seen.stops_ns, disturbed, strict=True))
    ]


def hashes(job: type, arguments: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the job's source, and of it with its arguments (`job`): equal where the same was run."""
    source = facts.source_hash(job)
    words = json.dumps({k: v for k, v in arguments.items() if k not in _PER_COPY}, sort_keys=True, default=str)
    return {"source": source, "job": hashlib.sha256((source + words).encode()).hexdigest()}


_PER_COPY = ("seed", "jr_id", "vcd", "cpu_cores", "report")  # arguments that tell copies apart


def environment(job: Job, uuids: list[str]) -> dict[str, Any]:
    """Machine, versions, device and clocks at the end of the window. `uuids` are of the GPUs of the share."""
    torch = sys.modules.get("torch")  # a job that works without it is not to wait for it
    versions = host.versions()
    return {
        "machine": host.describe(),
        "versions": {**versions, "torch": str(torch.__version__)} if torch else versions,
        "threads": torch.get_num_threads() if torch else None,
        "device": job.config.device,
        "device_uuids": uuids,
        "precision": job.config.precision,
        "clocks": _clocks(uuids),
    }


def _clocks(uuids: list[str]) -> dict[str, Any]:
    """Clocks of the GPUs and of the fastest CPU right now, in hertz; what cannot be read is absent."""
    found: dict[str, Any] = {}
    cpus = [
        _number(Path(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq")) for cpu in os.sched_getaffinity(0)
    ]
    if known := [1000.0 * kilohertz for kilohertz in cpus if kilohertz is not None]:
        found["cpu_max_hz"] = max(known)
    if uuids:
        found["gpus"] = _gpu_clocks(uuids)
    return found


def _gpu_clocks(uuids: list[str]) -> list[dict[str, Any]]:
    try:
        import pynvml  # type: ignore[import-untyped]

        pynvml.nvmlInit()
    except Exception:  # no driver, or none that answers: clocks are a remark, never a reason to fail
        return []
    found = []
    for uuid in uuids:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            sm, memory = (pynvml.nvmlDeviceGetClockInfo(handle, kind) for kind in (1, 2))  # NVML_CLOCK_SM, _MEM
            reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        except pynvml.NVMLError:
            continue
        found.append({"uuid": uuid, "sm_hz": sm * 1e6, "memory_hz": memory * 1e6, "throttle_reasons": reasons})
    return found


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
