# SPDX-License-Identifier: MIT
"""The phases of a workflow: find modes and Bs, check equality, run everything interleaved, conclude."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import host
from .._runs.failures import CLASSES
from .._runs.folder import Record, stamp
from .._runs.interrupts import deferred
from ..errors import Error, Unavailable
from . import modes, plan
from .launch import MAX_PROCESSES, Launcher, Point, replica_directories
from .metrics import measured, read_steps
from .points import drawn_Bs, fixed_Bs
from .processes import Outcome
from .progress import Durations, Progress
from .settings import Settings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Report", "Workflow"]

# What a failed run says about the thing measured; it would fail again. Other failures are tried again by
# --resume.
_FINAL_FAILURES = ("oom", "nan")


@dataclass
class Report:
    """What a workflow ends with."""

    root: Path
    settings: Settings
    state: dict[str, Any]  # workflow.json
    table: pd.DataFrame | None  # results.load, None when no run finished
    summary: pd.DataFrame | None  # results.summarize
    files: list[Path]  # CSV and PNG written
    problems: list[str]  # why the exit status is not 0

    @property
    def ok(self) -> bool:
        return not self.problems


class Workflow:
    """The phases of one workflow over its record. Every phase leaves what it found in `workflow.json`."""

    def __init__(self, record: Record, settings: Settings, progress: Progress) -> None:
        from .. import jobs

        self.record, self.settings, self.progress = record, settings, progress
        self.state = record.state
        self.unit: str = jobs.get(settings.job).unit
        self.launcher = Launcher(settings)
        self.durations = Durations()
        self.problems: list[str] = []

    def execute(self) -> Report:
        """Every phase, in order; what an earlier process has finished is not done again."""
        self.find_modes()
        self.find_Bs()
        self.check_equality()
        self.run_all()
        return self.conclude()

    def find_modes(self) -> None:
        """Which of the modes asked for this machine has."""
        reasons = {name: modes.get(name).unavailable(self.settings.device) for name in self.settings.modes}
        self.state["unavailable"] = {name: reason for name, reason in reasons.items() if reason}
        if len(self.state["unavailable"]) == len(self.settings.modes):
            raise Unavailable("; ".join(f"{n}: {r}" for n, r in self.state["unavailable"].items()))
        self.record.save()

    def find_Bs(self) -> None:
        """For each mode and precision: how many models fit, and which Bs to measure."""
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
                self.state["Bs"][key] = drawn_Bs(self.settings, max_B) if max_B else []
            self.record.save()
        for key, found in self.state["search"].items():
            if not found["max_B"]:
                self.problems.append(f"{key}: {found['message']}")

    def _search(self, mode: modes.Mode, precision: str) -> dict[str, Any]:
        """Doubling and bisection; each B is proven by a dry run."""
        limits = [limit for limit in (mode.limit_B, self.settings.limit_B) if limit]
        self.progress.stage(f"how many models fit: {mode.name} {precision}")
        tried: list[dict[str, Any]] = []

        def try_B(B: int) -> bool:
            point = Point(mode.name, precision, B)
            outcome = self._try(point)
            tried.append({"B": B, "ok": outcome.ok, "failure": outcome.failure, "message": outcome.message,
                          "seconds": outcome.seconds})  # fmt: skip
            if outcome.failure not in (None, "oom") and B == 1:
                raise Error(f"{point} fails ({outcome.failure}): {outcome.message}")
            self.progress.done(
                f"  B={B}: {'fits' if outcome.ok else f'{outcome.failure}: {outcome.message}'}"
            )
            return outcome.ok

        try:
            max_B = plan.find_max_B(try_B, min(limits, default=None))
        except Error as error:
            return {"max_B": None, "tried": tried, "message": str(error)}
        return {"max_B": max_B, "tried": tried, "message": "", "limit": min(limits, default=None)}

    def _try(self, point: Point) -> Outcome:
        directory = self.record.scratch("search", f"{point.mode}-{point.precision}-B{point.B}")
        self.progress.now(f"dry run {point}", None)
        try:
            return self.launcher.run("dry-run", point, directory, iters_per_epoch=self.settings.dry_run_iters,
                                     tick=self.progress.tick)  # fmt: skip
        except Unavailable as error:
            return Outcome("crash", str(error), [], 0.0)

    def check_equality(self) -> None:
        """Does the fused array compute what separate models do? Without a yes, it is not measured."""
        for precision in self.settings.precisions:
            Bs = self.state["Bs"].get(f"hfta/{precision}")
            if Bs and "passed" not in self.state["equality"].get(precision, {}):
                B = next((B for B in Bs if B > 1), Bs[0])
                self.progress.stage(
                    f"equality check: {B} fused models against {B} separate ones, {precision}"
                )
                self.state["equality"][precision] = self._equality(Point("hfta", precision, B))
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
        try:
            outcome = self.launcher.run("equality", point, directory, tick=self.progress.tick)
        except Unavailable as error:
            return {"failure": "crash", "message": str(error)}
        if not outcome.ok:  # no verdict: asked again by --resume
            return {"failure": outcome.failure, "message": f"{outcome.failure}: {outcome.message}"}
        return {"B": point.B, **outcome.results[0]["equality"]}

    def points(self) -> list[Point]:
        """All that is to be measured; fused points only where the equality check passed."""
        passed = {precision for precision, check in self.state["equality"].items() if check.get("passed")}
        return [
            Point(name, precision, B)
            for name, precision in self._combinations()
            for B in self.state["Bs"].get(f"{name}/{precision}", [])
            if name != "hfta" or precision in passed
        ]

    def run_all(self) -> None:
        """Every point in every repeat, interleaved; those that have a final record are left out."""
        have = set()
        for run in self.record.finished():
            if run["status"] == "ok" or run["failure"] in _FINAL_FAILURES:
                have.add((run["repeat"], Point(run["mode"], run["precision"], run["B"])))
            self.durations.add(Point(run["mode"], run["precision"], run["B"]), run["seconds"])
        order = plan.interleave(self.points(), self.settings.repeats, self.settings.seed)
        left = [item for item in order if item not in have]
        self.state["order"] = [f"r{repeat} {point}" for repeat, point in order]
        self.record.save()
        self.progress.stage(f"{len(left)} of {len(order)} runs to do", len(left))
        for i, (repeat, point) in enumerate(left):
            self.progress.now(f"{point} repeat {repeat + 1}/{self.settings.repeats}", self._eta_s(left[i:]))
            run = self.run_one(point, repeat)
            self.durations.add(point, run["seconds"])
            self.progress.now("", self._eta_s(left[i + 1 :]))
            self.progress.done(f"[{i + 1}/{len(left)}] {point} repeat {repeat + 1}: {_said(run)}")

    def _eta_s(self, left: list[tuple[int, Point]]) -> float | None:
        return self.durations.expect_all_s(point for _, point in left)

    def run_one(self, point: Point, repeat: int) -> dict[str, Any]:
        """One run, recorded whatever comes of it."""
        started_s = time.time()
        name = f"{stamp(started_s)}-{self.settings.job}-{point.mode}-B{point.B}-{point.precision}-r{repeat}"
        directory = self.record.begin_run(name)
        load_before = host.load_average()
        try:
            outcome = self.launcher.run("run", point, directory, repeat, self.settings.epochs,
                                        self.settings.iters_per_epoch, self.progress.tick)  # fmt: skip
        except Unavailable as error:
            outcome = Outcome("crash", str(error), [], time.time() - started_s)
        metrics, window = self._measured(point, directory, outcome) if outcome.ok else ([], {})
        run = {
            **self._asked(point, repeat), "status": "ok" if outcome.ok else "failed",
            "failure": outcome.failure, "message": outcome.message, "unit": self.unit, "metrics": metrics,
            "window": window,
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started_s)),
            "seconds": outcome.seconds, "load_before": load_before, "load_after": host.load_average(),
            "replicas": outcome.results,
        }  # fmt: skip
        with deferred():
            self.record.finish_run(directory, run)
        return run

    def _measured(
        self, point: Point, directory: Path, outcome: Outcome
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        processes = modes.get(point.mode).processes(point.B)
        replicas = [read_steps(path / "samples.csv") for path in replica_directories(directory, processes)]
        return measured(replicas, self.unit, any(result["asynchronous"] for result in outcome.results))

    def _asked(self, point: Point, repeat: int) -> dict[str, Any]:
        """What a run was told, and by what it was confined."""
        mode = modes.get(point.mode)
        return {
            "format": 1, "job": self.settings.job, "mode": point.mode, "precision": point.precision,
            "B": point.B, "repeat": repeat,
            "device": self.settings.device, "device_model": self.settings.device_model,
            "processes": mode.processes(point.B), "width": mode.width(point.B),
            "epochs": self.settings.epochs, "iters_per_epoch": self.settings.iters_per_epoch,
            "configs": self.launcher.configs(point, repeat) if mode.processes(point.B) <= MAX_PROCESSES else [],
            "settings": self.settings.to_dict(),
            "variables": self.launcher.environment(point), **self.state["environment"],
            "isolation": {
                "cgroup": "not used", "affinity": "as inherited",
                "memory": "RLIMIT_DATA, an equal share of the available memory for each process"
                if self.settings.device == "cpu" else "none: CUDA reserves more than it uses",
            },
            "equality": self.state["equality"].get(point.precision) if mode.width(point.B) else None,
        }  # fmt: skip

    def conclude(self) -> Report:
        """Summary, CSV and PNG of all finished runs."""
        from .outputs import write_outputs

        for run in self._failed():
            what = CLASSES.get(run["failure"], "unknown")
            point = Point(run["mode"], run["precision"], run["B"])
            self.problems.append(
                f"{point} repeat {run['repeat'] + 1}: {run['failure']} ({what}): {run['message']}"
            )
        table, summary, files = write_outputs(self.record.root, self.settings)
        self.state["status"] = "failed" if self.problems else "done"
        self.state["problems"] = self.problems
        self.record.save()
        return Report(self.record.root, self.settings, self.state, table, summary, files, self.problems)

    def _failed(self) -> list[dict[str, Any]]:
        """Failed runs that no later one has made good."""
        last = {
            (run["mode"], run["precision"], run["B"], run["repeat"]): run for run in self.record.finished()
        }
        return [run for run in last.values() if run["status"] != "ok"]

    def _combinations(self) -> list[tuple[str, str]]:
        return [(name, precision) for name in self.settings.modes if name not in self.state["unavailable"]
                for precision in self.settings.precisions]  # fmt: skip


def _said(run: dict[str, Any]) -> str:
    if run["status"] != "ok":
        return f"{run['failure']}: {run['message']}"
    return f"{run['metrics'][0]['value']:.1f} {run['metrics'][0]['unit']} in {run['seconds']:.1f} s"
