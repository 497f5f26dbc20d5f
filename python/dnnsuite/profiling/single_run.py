# SPDX-License-Identifier: MIT
"""One process of a plan over batch sizes: a job with a task, in a directory that appears when it is complete."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._runs import facts
from .._runs.folder import PlanFolder
from .._runs.group import Direct, run_group
from .._runs.interrupts import deferred
from .._runs.limits import memory_share_bytes
from .._runs.record import Kind, Moment, RunRecord, data_source, new_id
from .._runs.spec import RESULT_FILE, SPEC_FILE, WorkerSpec

if TYPE_CHECKING:
    from ..jobs import JobConfig
    from ..profiler.monitor import Monitor

Figures = Callable[[RunRecord, Mapping[str, Any], Path], RunRecord]


@dataclass(frozen=True)
class SingleRun:
    """One process of a measurement, and its part of the record.

    Attributes:
        task: `module:function` that does the work, with `details`.
        plan: name of the plan in tables.
        variables: added to the environment.
        monitor: samples the machine meanwhile; None for no samples.
    """

    kind: Kind
    plan: str
    task: str
    job: str
    config: JobConfig
    details: Mapping[str, Any]
    plugins: tuple[str, ...]
    timeout_s: float
    asked: Mapping[str, Any]
    repeat: int = 0
    preset: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    monitor: Monitor | None = None

    def run(
        self, folder: PlanFolder, name: str, tick: Callable[[Path], None], figures: Figures
    ) -> tuple[RunRecord, Path]:
        """Make the run; return its record, a failed run's too, and its directory.

        Args:
            tick: called about ten times a second with the directory under way.
            figures: (record without figures, what the worker wrote, its directory) → the record.
        """
        directory = folder.begin_run(name)
        started = Moment.now()
        try:
            outcome = self._group(directory, tick)
            result = outcome.results[0] if outcome.workers else {}
            run = figures(self.record(folder, started, outcome, result), result, directory)
            final = self.finish(folder, directory, run)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return run, final

    def spec(self, directory: Path, memory_bytes: int) -> WorkerSpec:
        """Return what the worker is told, which may reserve so much memory."""
        limit = memory_bytes if self.config.device == "cpu" else None
        return WorkerSpec(
            self.task,
            str(directory),
            self.job,
            self.config.to_dict(),
            self.details,
            self.plugins,
            (os.getcwd(),),
            limit,
        )

    def _group(self, directory: Path, tick: Callable[[Path], None]) -> Any:
        memory = memory_share_bytes(1)
        spec = self.spec(directory, memory)

        def go(follow: Callable[[int], None] = lambda pid: None) -> Any:
            return run_group(
                [spec], [self.variables], self.timeout_s, Direct(memory), "end", lambda: tick(directory), follow
            )

        if self.monitor is None:
            return go()
        with self.monitor:
            outcome = go(self.monitor.follow)
        self.monitor.write(directory)
        return outcome

    def finish(self, folder: PlanFolder, directory: Path, run: RunRecord) -> Path:
        """Write the record of a run; return its final directory."""
        for file in ("progress.txt", SPEC_FILE, RESULT_FILE):
            (directory / file).unlink(missing_ok=True)
        with deferred():
            return folder.finish_run(directory, run)

    def record(self, folder: PlanFolder, started: Moment, outcome: Any, result: Mapping[str, Any]) -> RunRecord:
        """Return the record of a run, without its figures."""
        from .. import jobs

        environment, config = facts.environment(), self.config
        Job = jobs.get(self.job)
        return RunRecord(
            id=new_id(), kind=self.kind, plan_id=folder.id, plan=self.plan, job=self.job,
            mode="hfta" if config.B else "serial", precision=config.precision, B=max(1, config.B),
            repeat=self.repeat, verdict=outcome.verdict, machine=facts.machine(environment["machine"]),
            device=facts.device(config.device, environment["machine"]), started=started, unit=Job.unit,
            seconds=outcome.seconds, job_version=version_of(Job, config.options), preset=self.preset,
            data=data_source(result.get("provenance")) or "unknown", seed=config.seed,
            batch_size=config.batch_size, threads=config.threads or 0, versions=environment["versions"],
            commit=facts.commit(), asked=self.asked, resolved=config.to_dict(),
        )  # fmt: skip


def config_of(request: Any, size: int, **other: Any) -> JobConfig:
    """Return the configuration of a request's job at one batch size; `other` is what differs from the request."""
    from .. import jobs

    same = {
        name: getattr(request, name) for name in ("B", "device", "precision", "threads", "seed", "data", "dataroot")
    }
    return jobs.JobConfig(**{**same, "batch_size": size, "options": dict(request.options), **other})


def version_of(job: type, options: Mapping[str, Any]) -> str:
    """Fingerprint of the job's source and options."""
    source = facts.source_hash(job)
    if not options:
        return source[:12]
    return hashlib.sha256((source + json.dumps(dict(options), sort_keys=True, default=str)).encode()).hexdigest()[:12]
