# SPDX-License-Identifier: MIT
"""Phases of a workflow: find modes and Bs, check equality, run everything interleaved, conclude."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import host
from .._runs import facts
from .._runs.failures import CLASSES
from .._runs.folder import PlanFolder, stamp
from .._runs.group import GroupOutcome
from .._runs.interrupts import deferred
from .._runs.progress import Durations, Progress
from .._runs.record import Isolation, Metric, Moment, RunRecord, Samples, Verdict, data_source, new_id
from .._runs.resume import final
from .._runs.samples import SAMPLES_FILE, read_steps
from .._shown import duration, rate
from ..errors import Error, Unavailable
from ..profiler.monitor import Monitor
from . import modes, plan
from .launch import MAX_PROCESSES, Launcher, Point, guess_s, replica_directories
from .metrics import measured, on_device, per_cpu_second
from .points import drawn_Bs, fixed_Bs
from .settings import WorkflowSettings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Workflow", "WorkflowReport"]

# Times that a dry run is made which something else on the machine ended, before the search gives up.
_TRIES = 3
# Models of an equality check, where as many fit.
_EQUALITY_B = 3


@dataclass
class WorkflowReport:
    """Result of a workflow."""

    root: Path
    settings: WorkflowSettings
    state: dict[str, Any]  # workflow.json
    table: pd.DataFrame | None  # results.load, None when no run finished
    summary: pd.DataFrame | None  # results.summarize
    files: list[Path]  # CSV and PNG written
    problems: list[str]  # why the exit status is not 0

    @property
    def ok(self) -> bool:
        """True if nothing failed."""
        return not self.problems


class _Disturbed(Error):
    """Raised when something else on the machine ended a dry run each time."""


class Workflow:
    """The phases of one workflow over its directory. Every phase writes its results to `workflow.json`."""

    def __init__(self, record: PlanFolder, settings: WorkflowSettings, progress: Progress) -> None:
        from .. import jobs

        self.record, self.settings, self.progress = record, settings, progress
        self.state = record.state
        self.unit: str = jobs.get(settings.job, jobs.Job).unit
        self.launcher = Launcher(settings)
        self.durations: Durations[Point] = Durations(guess_s)
        self.problems: list[str] = []
        self.repeats: Sequence[int] = range(
            settings.repeats
        )  # that are measured here: all, or those of a device

    def execute(self) -> WorkflowReport:
        """Run every phase, in order; what an earlier process has finished is not done again."""
        self.find_modes()
        self.find_Bs()
        self.check_equality()
        self.run_all()
        return self.conclude()

    def find_modes(self) -> None:
        """Leave out the modes that this machine does not have."""
        self.state["unavailable"] = modes.unavailable(self.settings.modes, self.settings.device)
        self.record.save()

    def find_Bs(self) -> None:
        """Find the number of models that fit, and the Bs to measure, for each mode and precision."""
        for name, precision in self._combinations():
            key = f"{name}/{precision}"
            if key in self.state["Bs"]:
                continue
            mode = modes.get(name)
            if fixed := fixed_Bs(self.settings, mode):
                self.state["Bs"][key] = fixed
            else:
                self.state["search"][key] = found = self._search(mode, precision)
                max_B = found["max_B"]
                if not found.get("disturbed"):  # else it is searched for again by --resume
                    self.state["Bs"][key] = drawn_Bs(self.settings, name, max_B) if max_B else []
            self.record.save()
        for key, found in self.state["search"].items():
            if not found["max_B"]:
                self.problems.append(f"{key}: {found['message']}")

    def _search(self, mode: modes.Mode, precision: str) -> dict[str, Any]:
        """Search by doubling and bisection; each B is proven by a dry run."""
        limits = [limit for limit in (mode.limit_B, self.settings.limit_B) if limit]
        self.progress.stage(f"how many models fit: {mode.name} {precision}")
        tried: list[dict[str, Any]] = []

        def try_B(B: int) -> bool:
            point = Point(mode.name, precision, B)
            for attempt in range(_TRIES):
                outcome = self._try(point)
                failure, message = outcome.verdict.failure, outcome.verdict.message
                tried.append(
                    {
                        "B": B,
                        "ok": outcome.ok,
                        "failure": failure,
                        "message": message,
                        "seconds": outcome.seconds,
                    }
                )
                self.progress.done(f"  B={B}: {'fits' if outcome.ok else f'{failure}: {message}'}")
                if failure not in ("contaminated", "killed"):
                    break
                if attempt == _TRIES - 1:
                    raise _Disturbed(f"{point} was ended {_TRIES} times ({failure}): {message}")
            if failure not in (None, "oom") and B == 1:
                raise Error(f"{point} fails ({failure}): {message}")
            return outcome.ok

        found: dict[str, Any] = {"tried": tried}
        try:
            repeats = self.settings.search[mode.name]["dry_run_repeats"]
            max_B = plan.find_max_B(try_B, min(limits, default=None), repeats)
        except Error as error:
            return {**found, "max_B": None, "message": str(error), "disturbed": isinstance(error, _Disturbed)}
        return {**found, "max_B": max_B, "message": "", "limit": min(limits, default=None)}

    def _try(self, point: Point) -> GroupOutcome:
        directory = self.record.scratch("search", f"{point.mode}-{point.precision}-B{point.B}")
        self.progress.now(f"dry run {point}", None)
        own = self.settings.search[point.mode]
        details = {"epochs": own["dry_run_epochs"], "iters_per_epoch": own["dry_run_iters_per_epoch"]}
        try:
            return self.launcher.run("dry_run", point, directory, details=details, tick=self.progress.tick)
        except Unavailable as error:
            return GroupOutcome.not_started("unavailable", str(error))

    def check_equality(self) -> None:
        """Compare the fused array with separate models; where they differ, it is not measured."""
        fused = [name for name, _ in self._combinations() if modes.get(name).width(1)]
        for precision in self.settings.precisions:
            # Of partly fused arrays the one in the middle: half of it takes each way.
            mode = fused[len(fused) // 2] if fused else "hfta"
            Bs = self.state["Bs"].get(f"{mode}/{precision}")
            if Bs and "passed" not in self.state["equality"].get(precision, {}):
                B = min(_EQUALITY_B, Bs[-1])
                self.progress.stage(
                    f"equality check: {B} fused models against {B} separate ones, {precision}"
                )
                self.state["equality"][precision] = self._equality(Point(mode, precision, B))
                self.record.save()
        for precision, check in self.state["equality"].items():
            if not check.get("passed"):
                why = check.get("message") or (
                    f"largest relative error {check.get('max_relative_error')}, "
                    f"tolerance {check.get('tolerance')}"
                )
                self.problems.append(
                    f"hfta/{precision}: equality check failed ({why}); its numbers are withheld"
                )

    def _equality(self, point: Point) -> dict[str, Any]:
        directory = self.record.scratch("equality", point.precision)
        details = {"steps": self.settings.equality_steps}
        try:
            outcome = self.launcher.run(
                "equality", point, directory, details=details, tick=self.progress.tick
            )
        except Unavailable as error:
            outcome = GroupOutcome.not_started("unavailable", str(error))
        if not outcome.ok:  # no verdict: asked again by --resume
            failure = outcome.verdict.failure
            return {"failure": failure, "message": f"{failure}: {outcome.verdict.message}"}
        return {"B": point.B, **outcome.results[0]["equality"]}

    def points(self) -> list[Point]:
        """List the points to measure; fused ones only where the equality check passed."""
        passed = {precision for precision, check in self.state["equality"].items() if check.get("passed")}
        return [
            Point(name, precision, B)
            for name, precision in self._combinations()
            for B in self.state["Bs"].get(f"{name}/{precision}", [])
            if not modes.get(name).width(1) or precision in passed
        ]

    def run_all(self) -> None:
        """Run every point in every repeat, interleaved, except those that have a final record."""
        done, problems = self.record.finished()
        for problem in problems:
            self.progress.line(problem)
        have = _settled([run.record for run in done])
        for run in done:
            self.durations.add(_point(run.record), run.record.seconds)
        order = plan.interleave(self.points(), self.settings.repeats, self.settings.seed)
        left = [item for item in order if item not in have and item[0] in self.repeats]
        self.state["order"] = [f"r{repeat} {point}" for repeat, point in order]
        self.record.save()
        self.progress.stage(f"{len(left)} of {len(order)} runs to do", len(left))
        for i, (repeat, point) in enumerate(left):
            self.progress.now(f"{point} repeat {repeat + 1}/{self.settings.repeats}", self._eta_s(left[i:]))
            made = self.run_one(point, repeat)
            self.durations.add(point, made.seconds)
            self.progress.done(
                f"[{i + 1}/{len(left)}] {point} repeat {repeat + 1}: {_said(made)}",
                self._eta_s(left[i + 1 :]),
            )

    def _eta_s(self, left: list[tuple[int, Point]]) -> float | None:
        return self.durations.expect_s(point for _, point in left)

    def run_one(self, point: Point, repeat: int) -> RunRecord:
        """Make one run and record its outcome, a failure too."""
        started, began_s = Moment.now(), time.monotonic()
        name = f"{stamp()}-{self.settings.job}-{point.mode}-B{point.B}-{point.precision}-r{repeat}"
        directory = self.record.begin_run(name)
        load_before = host.load_average()
        monitor = Monitor(self.settings.monitor, gpus=self.settings.device == "cuda")
        details = {"epochs": self.settings.epochs, "iters_per_epoch": self.settings.iters_per_epoch}
        try:
            outcome = self.launcher.run(
                "rate", point, directory, repeat, details, self.progress.tick, monitor
            )
        except Unavailable as error:
            outcome = GroupOutcome.not_started("unavailable", str(error), time.monotonic() - began_s)
        monitor.write(directory)
        metrics, window = self._measured(point, directory, outcome) if outcome.ok else ((), {})
        asked = self._asked(point, repeat, started)
        run = replace(
            asked,
            verdict=outcome.verdict,
            metrics=metrics,
            window=window,
            seconds=outcome.seconds,
            samples=self._samples(point) if outcome.ok else None,
            data=_data(outcome),
            items_per_step=float(outcome.results[0].get("items_per_step", 0.0)) if outcome.results else 0.0,
            disturbances=_disturbances(window),
            details={
                **asked.details,
                "load_before": load_before,
                "load_after": host.load_average(),
                "replicas": outcome.results,
                "monitor": monitor.record(),
            },
        )
        with deferred():
            self.record.finish_run(directory, run)
        return run

    def _samples(self, point: Point) -> Samples:
        places = replica_directories(Path(), modes.get(point.mode).processes(point.B))
        return Samples(tuple((place / SAMPLES_FILE).as_posix() for place in places))

    def _measured(
        self, point: Point, directory: Path, outcome: GroupOutcome
    ) -> tuple[tuple[Metric, ...], dict[str, Any]]:
        processes = modes.get(point.mode).processes(point.B)
        replicas = [read_steps(path / SAMPLES_FILE) for path in replica_directories(directory, processes)]
        late = any(result["asynchronous"] for result in outcome.results)
        metrics, window = measured(replicas, self.unit, late)
        more = on_device(outcome.results, self.unit)
        if self.settings.device == "cpu":
            more += per_cpu_second(outcome.results, replicas, window["dropped_epochs"], self.unit)
        return (*metrics, *more), window

    def _asked(self, point: Point, repeat: int, started: Moment) -> RunRecord:
        """Return the record of a run before it has begun: what it was told, and by what it is confined."""
        from .. import jobs

        settings, mode, state = self.settings, modes.get(point.mode), self.state
        described, versions = state["environment"]["machine"], state["environment"]["versions"]
        processes = mode.processes(point.B)
        configs = self.launcher.configs(point, repeat) if processes <= MAX_PROCESSES else []
        memory = (
            "RLIMIT_DATA, an equal share of the available memory for each process"
            if settings.device == "cpu"
            else "none: CUDA reserves more than it uses"
        )
        return RunRecord(
            id=new_id(), kind="workflow", plan_id=self.record.id, plan=settings.job, job=settings.job, mode=point.mode,
            precision=point.precision, B=point.B, repeat=repeat, verdict=Verdict.good(),
            machine=facts.machine(described), device=facts.device(settings.device, described), started=started,
            unit=self.unit, preset=settings.preset, seed=configs[0].seed if configs else settings.seed,
            job_version=facts.source_hash(jobs.get(settings.job, jobs.Job))[:12],
            batch_size=settings.batch_size, processes=processes, threads=self.launcher.threads(point.mode, point.B),
            isolation=Isolation("none", details={"affinity": "as inherited", "memory": memory}),
            versions=versions, commit=facts.commit(), asked=state.get("asked", {}), resolved=settings.to_dict(),
            details={
                "width": mode.width(point.B), "epochs": settings.epochs, "iters_per_epoch": settings.iters_per_epoch,
                "device_model": settings.device_model, "configs": [config.to_dict() for config in configs],
                "variables": self.launcher.environment(point), "machine": described,
                "equality": state["equality"].get(point.precision) if mode.width(point.B) else None,
            },
        )  # fmt: skip

    def conclude(self) -> WorkflowReport:
        """Write summary, CSV and PNG of all finished runs."""
        from .outputs import write_outputs

        for run in self._failed():
            failure = run.verdict.failure or "crash"
            what = CLASSES.get(failure, "unknown")
            self.problems.append(
                f"{_point(run)} repeat {run.repeat + 1}: {failure} ({what}): {run.verdict.message}"
            )
        table, summary, files = write_outputs(self.record.root, self.settings)
        self.state["status"] = "failed" if self.problems else "done"
        self.state["problems"] = self.problems
        self.record.save()
        return WorkflowReport(
            self.record.root, self.settings, self.state, table, summary, files, self.problems
        )

    def _failed(self) -> list[RunRecord]:
        """Failed runs that no later one has made good."""
        last = {(_point(run.record), run.record.repeat): run.record for run in self.record.finished()[0]}
        return [run for run in last.values() if not run.ok]

    def _combinations(self) -> list[tuple[str, str]]:
        return [
            (name, precision)
            for name in self.settings.modes
            if name not in self.state["unavailable"]
            for precision in self.settings.precisions
        ]


def _point(run: RunRecord) -> Point:
    return Point(run.mode, run.precision, run.B)


def _settled(runs: Sequence[RunRecord]) -> set[tuple[int, Point]]:
    """Return (repeat, point) of runs that are not made again. More models that fitted contradict that memory ran
    out."""
    most: dict[tuple[str, str], int] = {}
    for run in runs:
        if run.ok:
            most[run.mode, run.precision] = max(run.B, most.get((run.mode, run.precision), 0))
    return {
        (run.repeat, _point(run))
        for run in runs
        if final(run)
        and not (run.verdict.failure == "oom" and most.get((run.mode, run.precision), 0) > run.B)
    }


def _data(outcome: GroupOutcome) -> str:
    provenance = outcome.results[0].get("provenance") if outcome.results else None
    return data_source(provenance) or "unknown"


def _disturbances(window: Mapping[str, Any]) -> tuple[str, ...]:
    """`no steady state` if a replica was not steady."""
    unsteady = any(each["steady"] is False for each in window.get("warmup", ()))
    return ("no steady state",) if unsteady else ()


def _said(run: RunRecord) -> str:
    if not run.ok:
        return f"{run.verdict.failure}: {run.verdict.message}"
    return f"{rate(run.metrics[0].value, run.metrics[0].unit)} in {duration(run.seconds)}"
