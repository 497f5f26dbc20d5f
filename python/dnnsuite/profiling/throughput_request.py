# SPDX-License-Identifier: MIT
"""Settings of a throughput measurement: job, batch sizes, protocol, and the threads and time of its process."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import host
from .._runs import facts
from .._runs.folder import PlanFolder
from .._runs.interrupts import deferred
from .._runs.monitor import Cores
from .._runs.record import Kind, Moment, RunRecord, data_source, new_id
from .._runs.spec import RESULT_FILE, SPEC_FILE, WorkerSpec, import_plugins
from .._runs.turn_session import wait_policy
from .._runs.words import choose_device
from ..errors import InvalidArgument, check_choice

if TYPE_CHECKING:
    from ..jobs import JobConfig


def parse_batch_sizes(text: str | None) -> tuple[int, ...]:
    """Parse the numbers of `1,2,4`; none for None.

    Raises:
        InvalidArgument: it is no list of whole numbers from 1 on.
    """
    if text is None:
        return ()
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(f"--batch-sizes {text!r}: write whole numbers with commas, e.g. 1,2,4") from None
    if min(sizes) < 1:
        raise InvalidArgument(f"--batch-sizes {text!r}: a batch has one item or more")
    return sizes


PRESETS = ("quick", "full")
TBD_SIZES = (1, 2, 4, 8, 16, 32, 64, 96, 128)  # of the original's measure_throughput.sh
_QUICK_SIZES = (1, 2, 4, 8)
_FIRST_WINDOW = 100  # iterations that the original leaves out


@dataclass(frozen=True)
class JobRequest:
    """Settings of a job that is measured over batch sizes."""

    job: str
    batch_sizes: tuple[int, ...] = ()
    B: int = 0
    device: str = "auto"
    precision: str = "fp32"
    threads: int | None = None
    seed: int = 0
    data: str = "auto"
    dataroot: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    timeout_s: float = 3600.0

    def to_dict(self) -> dict[str, Any]:
        """Return the request as plain JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def config(self, size: int, **other: Any) -> JobConfig:
        """Return the configuration of the job at one batch size; `other` is what differs from the request."""
        from .. import jobs

        same = {name: getattr(self, name) for name in _OF_THE_JOB}
        return jobs.JobConfig(**{**same, "batch_size": size, "options": dict(self.options), **other})

    def check_limits(self) -> None:
        """Raise InvalidArgument for numbers that no process can have, or a batch size that is there twice."""
        if self.threads is not None and self.threads < 1:
            raise InvalidArgument(f"--threads {self.threads}: must be at least 1")
        if not 0 < self.timeout_s < float("inf"):
            raise InvalidArgument(f"--timeout {self.timeout_s}: must be a positive number of seconds")
        if len(set(self.batch_sizes)) < len(self.batch_sizes):
            raise InvalidArgument(f"--batch-sizes: {','.join(map(str, self.batch_sizes))} names one twice")


_OF_THE_JOB = ("B", "device", "precision", "threads", "seed", "data", "dataroot")


@dataclass(frozen=True)
class Request(JobRequest):
    """Settings of a measurement; equal requests share a directory.

    Attributes:
        batch_sizes: sizes to measure; empty for TBD's nine, with `quick` for 1, 2, 4, 8.
        preset: quick (a smaller model, seconds a run) or full.
        stop_iteration: number of iterations of TBD's protocol, of which those from `start_iteration` on count. None:
            until the rate is known to `target`, the half width of its 95 % interval over it (by default 0.01, with
            `quick` 0.05), or `budget_s` is spent.
        start_iteration: first rated iteration; by default 100, TBD's first window, but at most half of all.
        repeats: processes per batch size, interleaved; by default 3, one with `stop_iteration`, two with `quick`.
        budget_s: seconds of timed steps in one process; by default 60, with `quick` 4.
        options: options of the job.
    """

    preset: str = "full"
    stop_iteration: int | None = None
    start_iteration: int | None = None
    repeats: int | None = None
    target: float | None = None
    budget_s: float | None = None

    def with_options(self, texts: Sequence[str]) -> Request:
        """Return the request with options of the job, `NAME=VALUE`.

        Raises:
            InvalidArgument: the job has no such option, or a value is of another kind.
        """
        from .. import jobs
        from .._runs.words import parse_options

        import_plugins(self.plugins, [os.getcwd()])
        return replace(self, options=parse_options(texts, _option_defaults(jobs.get(self.job)), self.job))

    def checked(self) -> Request:
        """Return the request with everything resolved.

        Raises:
            InvalidArgument: a value is refused; the message says what is accepted.
            Unavailable: the device is not there.
        """
        from .. import jobs

        self._check()  # before defaults take the place of zeros
        check_choice("--preset", self.preset, PRESETS)
        import_plugins(self.plugins, [os.getcwd()])
        Job = jobs.get(self.job)
        quick, start = self.preset == "quick", self.start_iteration
        if self.stop_iteration is not None and start is None:
            start = min(_FIRST_WINDOW, self.stop_iteration // 2)
        device = choose_device(self.device)
        made = replace(
            self,
            device=device,
            batch_sizes=self.batch_sizes or (_QUICK_SIZES if quick else TBD_SIZES),
            options={**_preset_options(Job, self.preset, device), **self.options},
            repeats=self.repeats or (1 if self.stop_iteration else 2 if quick else 3),
            target=self.target or (0.05 if quick else 0.01),
            budget_s=self.budget_s or (4.0 if quick else 60.0),
            start_iteration=start,
        )
        for size in made.batch_sizes:
            Job(made.config(size))  # refuses what it does not take
        return made

    def _check(self) -> None:
        self.check_limits()
        for name, value in (("--repeats", self.repeats), ("--stop-iteration", self.stop_iteration)):
            if value is not None and value < 1:
                raise InvalidArgument(f"{name} {value}: must be at least 1")
        if self.budget_s is not None and not 0 < self.budget_s < float("inf"):
            raise InvalidArgument(f"--budget {self.budget_s}: must be a positive number of seconds")
        if self.target is not None and not 0 < self.target < 1:
            raise InvalidArgument(f"--target {self.target}: a part of the rate, e.g. 0.01 for 1 %")
        if self.start_iteration is None:
            return
        if self.stop_iteration is None:
            raise InvalidArgument("--start-iteration goes with --stop-iteration")
        if not 0 <= self.start_iteration < self.stop_iteration:
            raise InvalidArgument(
                f"--start-iteration {self.start_iteration}: from 0 to {self.stop_iteration - 1}, before "
                "--stop-iteration"
            )

    def chunks(self) -> list[int]:
        """Iterations of each turn, where their number is given: those of warm-up, then those that count."""
        start, stop = self.start_iteration or 0, self.stop_iteration or 0
        return [min(_CHUNK, end - at) for begin, end in ((0, start), (start, stop)) for at in range(begin, end, _CHUNK)]

    def warm_up_blocks(self) -> int:
        """Turns of warm-up; 0 where a run warms up until it is settled."""
        return math.ceil((self.start_iteration or 0) / _CHUNK) if self.stop_iteration else 0

    def single(self, size: int, repeat: int, cores: Cores) -> SingleRun:
        """Return the run of one process, with no more threads than neighbours leave cores free."""
        threads = self.threads or host.num_threads()
        if cores.shared:
            threads = min(threads, len(cores.cpus))
        variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        variables |= wait_policy(threads, 1, cores)
        if self.device != "cpu" and self.precision == "fp32":
            variables["NVIDIA_TF32_OVERRIDE"] = "0"  # fp32 means fp32
        return SingleRun(
            "throughput",
            "dnnsuite.profiling.job:rate",
            self,
            self.config(size, seed=self.seed + repeat, data_seed=self.seed, threads=threads),
            {"warm_up": self.warm_up_blocks(), "cpus": list(cores.cpus) if cores.shared else None},
            variables,
            repeat,
            self.preset,
        )


_CHUNK = 10  # iterations of a turn, where their number is given
_PROTOCOL = ("batch_size", "repeat", "number")  # among a suite job's defaults, not options


def _option_defaults(job: Any) -> Mapping[str, Any] | None:
    """Return the job's options and their defaults; None where only the job itself knows them."""
    if hasattr(job, "option_defaults"):
        found: Mapping[str, Any] | None = job.option_defaults()
        return found
    if not hasattr(job, "defaults"):
        return None
    return {name: value for name, value in job.defaults.items() if name not in _PROTOCOL}


def _preset_options(job: Any, preset: str, device: str) -> dict[str, Any]:
    """Return the job's options in a preset: a suite's job has `smoke`, a fused one presets, a user's perhaps
    neither."""
    if preset == "full":
        return {}
    if hasattr(job, "preset"):
        return dict(job.preset("quick", device).get("options") or {})
    return {name: value for name, value in getattr(job, "smoke", {}).items() if name not in _PROTOCOL}


@dataclass(frozen=True)
class SingleRun:
    """One process of a measurement, and its part of the record.

    Attributes:
        task: `module:function` that does the work, with `details`.
        variables: added to the environment.
    """

    kind: Kind
    task: str
    request: JobRequest
    config: JobConfig
    details: Mapping[str, Any]
    variables: Mapping[str, str]
    repeat: int = 0
    preset: str = ""

    def spec(self, directory: Path, memory_bytes: int) -> WorkerSpec:
        """Return what the worker is told, which may reserve so much memory."""
        limit, asked = memory_bytes if self.config.device == "cpu" else None, self.request
        config, here = self.config.to_dict(), (os.getcwd(),)
        return WorkerSpec(self.task, str(directory), asked.job, config, self.details, asked.plugins, here, limit)

    def finish(self, folder: PlanFolder, directory: Path, run: RunRecord) -> Path:
        """Write the record of a run; return its final directory."""
        for file in ("progress.txt", SPEC_FILE, RESULT_FILE):
            (directory / file).unlink(missing_ok=True)
        with deferred():
            return folder.finish_run(directory, run)

    def record(self, folder: PlanFolder, started: Moment, outcome: Any, result: Mapping[str, Any]) -> RunRecord:
        """Return the record of a run, without its figures."""
        from .. import jobs

        environment, config, asked = facts.environment(), self.config, self.request
        Job = jobs.get(asked.job)
        return RunRecord(
            id=new_id(), kind=self.kind, plan_id=folder.id, plan=f"{self.kind} of {asked.job}", job=asked.job,
            mode="hfta" if config.B else "serial", precision=config.precision, B=max(1, config.B),
            repeat=self.repeat, verdict=outcome.verdict, machine=facts.machine(environment["machine"]),
            device=facts.device(config.device, environment["machine"]), started=started, unit=Job.unit,
            seconds=outcome.seconds, job_version=version_of(Job, config.options), preset=self.preset,
            data=data_source(result.get("provenance")) or "unknown", seed=config.seed,
            batch_size=config.batch_size, threads=config.threads or 0, versions=environment["versions"],
            commit=facts.commit(), asked=asked.to_dict(), resolved=config.to_dict(),
        )  # fmt: skip


def version_of(job: type, options: Mapping[str, Any]) -> str:
    """Fingerprint of the job's source and options."""
    source = facts.source_hash(job)
    if not options:
        return source[:12]
    return hashlib.sha256((source + json.dumps(dict(options), sort_keys=True, default=str)).encode()).hexdigest()[:12]
