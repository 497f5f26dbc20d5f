# SPDX-License-Identifier: MIT
"""Phases of a workflow: find modes and Bs, run everything in turns, conclude."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._lazy import pandas as pd
from .._runs.failures import CLASSES
from .._runs.folder import PlanFolder, final
from .._runs.group import GroupOutcome
from .._runs.monitor import all_cores, free_cores
from .._runs.progress import Progress
from .._runs.record import RunRecord
from ..errors import Error, Unavailable
from . import modes, plan
from .launch import Launcher, Point
from .plan import drawn_Bs, fixed_Bs
from .runs import Runs, baseline_of
from .settings import WorkflowSettings

# Times that a dry run is made which something else on the machine ended, before the search gives up.
_TRIES = 3
# Models of an equality check, where as many fit.
_EQUALITY_B = 3


@dataclass
class WorkflowReport:
    """Result of a workflow.

    Attributes:
        root: its directory.
        settings: settings with which it ran.
        state: content of the workflow's file in the directory.
        table: all runs, or None if there is none.
        summary: throughput with 95 % intervals, or None.
        files: files that were written.
        problems: a sentence for each run that failed or cannot be read.
    """

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
        self.record, self.settings, self.progress = record, settings, progress
        self.state = record.state
        asked = settings.threads
        self.cores = free_cores(asked) if settings.device == "cpu" else all_cores()
        self.launcher = Launcher(settings, self.cores)
        self.problems: list[str] = []
        self.repeats: Sequence[int] = range(settings.repeats)  # to measure here: all, or those of a device

    def execute(self) -> WorkflowReport:
        """Run every phase, in order; what an earlier process has finished is not done again."""
        self.find_modes()
        self.find_Bs()
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
                        "B": B, "ok": outcome.ok, "failure": failure, "message": message,
                        "seconds": outcome.seconds, "peak_bytes": _peak_bytes(outcome),
                    }
                )  # fmt: skip
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
                self.progress.stage(f"equality check: {B} fused models against {B} separate ones, {precision}")
                self.state["equality"][precision] = self._equality(Point(mode, precision, B))
                self.record.save()
        for precision, check in self.state["equality"].items():
            if not check.get("passed"):
                why = check.get("message") or (
                    f"largest relative error {check.get('max_relative_error')}, tolerance {check.get('tolerance')}"
                )
                self.problems.append(f"hfta/{precision}: equality check failed ({why}); its numbers are withheld")

    def _equality(self, point: Point) -> dict[str, Any]:
        directory = self.record.scratch("equality", point.precision)
        details = {"steps": self.settings.equality_steps}
        try:
            outcome = self.launcher.run("equality", point, directory, details=details, tick=self.progress.tick)
        except Unavailable as error:
            outcome = GroupOutcome.not_started("unavailable", str(error))
        if not outcome.ok:  # no verdict: asked again by --resume
            failure = outcome.verdict.failure
            return {"failure": failure, "message": f"{failure}: {outcome.verdict.message}"}
        return {"B": point.B, **outcome.results[0]["equality"]}

    def points(self) -> list[Point]:
        """List the points to measure."""
        return [
            Point(name, precision, B)
            for name, precision in self._combinations()
            for B in self.state["Bs"].get(f"{name}/{precision}", [])
        ]

    def _equal(self) -> set[str]:
        """Check arrays against separate models; return the precisions in which they may be rated."""
        self.check_equality()
        return {precision for precision, check in self.state["equality"].items() if check.get("passed")}

    def run_all(self) -> None:
        """Run every point in every repeat, in turns, except those that have a final record."""
        done, problems = self.record.finished()
        for problem in problems:
            self.progress.line(problem)
        have = _settled([run.record for run in done])
        points = self.points()
        if all(modes.get(point.mode).width(point.B) for point in points):  # nothing to look at before
            passed = self._equal()
            points = [point for point in points if point.precision in passed]
        left = {
            repeat: missing
            for repeat in self.repeats
            if (missing := [point for point in points if (repeat, point) not in have])
        }
        count = sum(map(len, left.values()))
        self.progress.stage(f"{count} of {len(points) * len(self.repeats)} runs to do, on {self.cores}")
        runs = Runs(self.record, self.settings, self.progress, self.launcher, self.cores, self._equal)
        runs.make(left, baseline_of(points))

    def conclude(self) -> WorkflowReport:
        """Write summary, CSV and PNG of all finished runs."""
        from .outputs import write_outputs

        for run in self._failed():
            failure = run.verdict.failure or "crash"
            what = CLASSES.get(failure, "unknown")
            self.problems.append(f"{_point(run)} repeat {run.repeat + 1}: {failure} ({what}): {run.verdict.message}")
        table, summary, files = write_outputs(self.record.root, self.settings)
        self.state["status"] = "failed" if self.problems else "done"
        self.state["problems"] = self.problems
        self.record.save()
        return WorkflowReport(self.record.root, self.settings, self.state, table, summary, files, self.problems)

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


def _peak_bytes(outcome: GroupOutcome) -> int:
    """Return the memory that all workers of a dry run took, on the device that they trained on; 0 if unknown."""
    told = [result.get("process", {}) for result in outcome.results]
    return sum(each.get("peak_cuda_bytes") or each.get("peak_rss_bytes", 0) for each in told)


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
        if final(run) and not (run.verdict.failure == "oom" and most.get((run.mode, run.precision), 0) > run.B)
    }
