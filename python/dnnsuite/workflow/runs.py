# SPDX-License-Identifier: MIT
"""Runs of a workflow: points that fit the memory together are started together, take turns, and are recorded.

All points of a group are compared with the baseline's blocks of the same rounds. A group that the memory does not hold
is made smaller, down to a point with its baseline, and at last a point by itself. NVIDIA's MPS and MIG change the
device for all that use it: their points are measured by themselves, and compared with the baseline's rate.

A budget is for all of a repeat: what it takes to start leaves less for turns, so that it ends when its user expects it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import host
from .._runs import facts
from .._runs.folder import PlanFolder, stamp
from .._runs.group import GroupOutcome
from .._runs.interrupts import deferred
from .._runs.monitor import Cores
from .._runs.progress import Progress
from .._runs.rates import SAMPLES_FILE
from .._runs.record import Isolation, Moment, RunRecord, Samples, Verdict, data_source, new_id
from .._runs.turn_session import BLOCK_S, Session
from .._runs.turn_workers import TurnWorkers
from .._runs.turns import Goal, Rounds
from .._runs.worker import LEAST_WARM_UP
from .._shown import rate, ratio
from ..errors import Unavailable
from ..profiler.monitor import Monitor
from ..results import BASELINE
from . import modes
from .launch import MAX_PROCESSES, Launcher, Point, replica_directories
from .outputs import measured
from .settings import WorkflowSettings

_PAIRS = 8  # turns after warm-up that a fixed number of epochs is cut into, at least
_FIRST_LOOK = 3  # rounds of the baseline and one more point, before all others are started
_LEAST_TURNS = 0.3  # share of the budget for turns, however long it took to start
# Guess of what a worker takes: an interpreter with torch and its model; and more for each model of an array.
_WORKER_BYTES, _MODEL_BYTES = 600 << 20, 150 << 20
_CONTEXT_BYTES = 600 << 20  # of a process on a GPU
_SHARE = 0.9  # of the memory that is there
_HELD_S = 0.5  # of the block without the loader, beside turns until a goal


@dataclass
class _Group:
    """Points that are resident together."""

    points: list[Point]
    repeat: int

    def smaller(self, failed: Collection[Point], baseline: Point | None) -> list[_Group]:
        """Return the groups in which points that found no memory are tried again; none where they had it all."""
        if len(self.points) == 1 or not failed:
            return []
        others = [point for point in self.points if point != baseline and (point in failed or baseline in failed)]
        if baseline in failed or baseline not in self.points or len(self.points) == 2:
            first = [[point] for point in self.points if point == baseline and point in failed]
            return [_Group(points, self.repeat) for points in [*first, *([point] for point in others)]]
        return [_Group([point for point in (baseline, other) if point], self.repeat) for other in others]


@dataclass
class _Going:
    """A group whose workers run."""

    group: _Group
    session: Session[Point]
    started: Moment
    folders: dict[Point, Path] = field(default_factory=dict)
    load_before: Any = None


class Runs:
    """The runs that a workflow lacks.

    Args:
        cores: CPUs that neighbours leave free.
        before_arrays: called once before the first array is started; returns the precisions in which arrays may be.
    """

    def __init__(
        self,
        record: PlanFolder,
        settings: WorkflowSettings,
        progress: Progress,
        launcher: Launcher,
        cores: Cores,
        before_arrays: Callable[[], Collection[str]],
    ) -> None:
        from .. import jobs

        self.record, self.settings, self.progress, self.launcher = record, settings, progress, launcher
        self.cores, self._before_arrays = cores, before_arrays
        self.unit: str = jobs.get(settings.job, swept=True).unit
        self.baseline: Point | None = None
        self._checked: Collection[str] | None = None
        self._until_s = math.inf  # when the turns of the group that is measured end

    def make(self, left: Mapping[int, Sequence[Point]], baseline: Point | None) -> None:
        """Measure the points left of each repeat; the baseline is one of them or was measured before."""
        self.baseline = baseline
        for repeat, points in left.items():
            groups = deque(self._groups(points, repeat))
            wanted, end_s = set(points), time.monotonic() + (self.settings.budget_s or math.inf)
            while groups:
                now_s = time.monotonic()
                self._until_s = now_s + (end_s - now_s) / len(groups)
                group = groups.popleft()
                groups.extendleft(reversed(group.smaller(self._measure(group, wanted), baseline)))

    def _groups(self, points: Sequence[Point], repeat: int) -> Iterator[_Group]:
        """Cut the points into groups that fit the memory, each with the baseline."""
        base = self.baseline
        apart = [point for point in points if modes.get(point.mode).changes_machine]
        others = [point for point in points if point not in apart and point != base]
        room = _SHARE * self._memory() - (self._bytes(base) if base else 0)
        batch: list[Point] = []
        head = [base] if base else []
        for point in others:
            if batch and sum(map(self._bytes, [*batch, point])) > room:
                yield _Group([*head, *batch], repeat)
                batch = []
            batch.append(point)
        if batch or (base in points and not others):
            yield _Group([*head, *batch], repeat)
        yield from (_Group([point], repeat) for point in apart)

    def _memory(self) -> int:
        if self.settings.device == "cpu":
            return host.available_memory_bytes()
        return max(gpu.memory_bytes for gpu in host.gpus())

    def _bytes(self, point: Point) -> int:
        """Guess the memory of a point: what its dry run took, where there was one."""
        tried = self.record.state.get("search", {}).get(f"{point.mode}/{point.precision}", {}).get("tried", [])
        seen = [each.get("peak_bytes", 0) for each in tried if each["B"] == point.B and each["ok"]]
        mode = modes.get(point.mode)
        processes, context = mode.processes(point.B), _CONTEXT_BYTES if self.settings.device != "cpu" else 0
        if any(seen):
            return int(max(seen)) + processes * context
        return processes * (_WORKER_BYTES + _MODEL_BYTES * mode.width(point.B))

    def _measure(self, group: _Group, wanted: set[Point]) -> set[Point]:
        """Run a group; record its points that are wanted, which then are no more; return those without memory."""
        monitor = Monitor(self.settings.monitor, gpus=self.settings.device == "cuda")
        repeat, baseline = group.repeat, self.baseline if self.baseline in group.points else None
        arrays = [point for point in group.points if modes.get(point.mode).width(point.B)]
        plain = [point for point in group.points if point not in arrays]
        with ExitStack() as held:
            try:  # a GPU cannot be split while NVML is open: the monitor comes after
                variables = self._placed(group, held)
            except Unavailable as error:
                self._all_failed(group, wanted, "unavailable", str(error))
                return set()
            held.enter_context(monitor)
            workers = held.enter_context(
                TurnWorkers[Point](self.settings.timeout_s, self.progress.tick, monitor.follow)
            )
            session = Session(workers, self.cores, self._goal(), baseline, self.settings.seed + repeat)
            session.rounds.warm_up = self._warm_up
            going = _Going(group, session, Moment.now(), load_before=host.load_average())
            several = sorted((point for point in plain if point != baseline and point.B > 1), key=lambda p: p.B)
            first = [point for point in plain if point == baseline] + several[:1]
            hurried = self.settings.budget_s is not None and arrays and self._checked is None
            if hurried and first:
                self._start(going, first, variables)
                self._settle(session)
                self._take(session, _FIRST_LOOK)
            early = arrays if hurried and self.settings.device == "cpu" else []
            self._start(going, [point for point in [*plain, *early] if point not in going.folders], variables)
            if arrays:  # those that are started set themselves up beside the check, and have no turn before it
                self._checked = self._before_arrays() if self._checked is None else self._checked
                workers.dismiss([point for point in early if point.precision not in self._checked])
                arrays = [point for point in arrays if point.precision in self._checked and point not in early]
                self._start(going, arrays, variables)
            self._settle(session)
            self._take(session, None if self.settings.budget_s else self._rounds)
            for point in workers.running():
                length = {"seconds": _HELD_S} if self.settings.budget_s else {"steps": self.settings.iters_per_epoch}
                workers.turn(point, {"do": "held", **length})
            outcomes = session.end()
        no_memory = {point for point, outcome in outcomes.items() if outcome.verdict.failure == "oom"}
        again = {point for each in group.smaller(no_memory, self.baseline) for point in each.points}
        again -= {self.baseline} - no_memory
        final = [point for point in outcomes if point in wanted and point not in again]
        self._record(going, outcomes, final, monitor)
        wanted.difference_update(final)
        return no_memory

    def _placed(self, group: _Group, held: ExitStack) -> dict[Point, list[dict[str, str]]]:
        """Prepare the device; return the environment of each process of each point."""
        counts = {point: modes.get(point.mode).processes(point.B) for point in group.points}
        mode = modes.get(group.points[-1].mode)
        environments = iter(held.enter_context(mode.place[self.settings.device](sum(counts.values()))))
        return {point: [next(environments) for _ in range(count)] for point, count in counts.items()}

    def _goal(self) -> Goal:
        settings = self.settings
        return Goal(settings.goal, budget_s=settings.budget_s or math.inf)

    @property
    def _parts(self) -> int:
        """Turns that an epoch of a fixed number is cut into, so that there are pairs enough."""
        counted = max(1, self.settings.epochs - 1)
        return max(1, min(self.settings.iters_per_epoch, math.ceil(_PAIRS / counted)))

    @property
    def _rounds(self) -> int:
        return self.settings.epochs * self._parts

    @property
    def _warm_up(self) -> int:
        """Rounds of the first of several epochs; a measurement until a goal has warmed up before."""
        return 0 if self.settings.budget_s or self.settings.epochs == 1 else self._parts

    def _order(self, number: int) -> dict[str, Any]:
        """Return the length of a round's blocks."""
        if self.settings.budget_s:
            return {"seconds": BLOCK_S}
        parts, iters = self._parts, self.settings.iters_per_epoch
        part = number % parts
        steps = iters * (part + 1) // parts - iters * part // parts
        return {"epoch": number // parts, "steps": steps, "ends": part == parts - 1}

    def _start(self, going: _Going, points: Sequence[Point], variables: Mapping[Point, list[dict[str, str]]]) -> None:
        """Start the workers of some points, which set themselves up; do not wait for them."""
        if not points:
            return
        count = sum(len(variables[point]) for point in points)
        self.progress.now(f"starting {count} process{'es' * (count > 1)}", None)
        weights = {point: self._bytes(point) for point in going.group.points}
        details = {
            "epochs": self.settings.epochs, "iters_per_epoch": self.settings.iters_per_epoch,
            "warm_up": self._warm_up, "cpus": list(self.cores.cpus) if self.cores.shared else None,
        }  # fmt: skip
        for point in points:
            name = f"{stamp()}-{self.settings.job}-{point.mode}-B{point.B}-{point.precision}-r{going.group.repeat}"
            going.folders[point] = folder = self.record.begin_run(name)
            share = weights[point] / sum(weights.values())
            self.launcher.start(
                going.session.workers, point, folder, going.group.repeat, details, variables[point], share
            )

    def _settle(self, session: Session[Point]) -> None:
        """Wait until what was started is set up, and let it settle."""
        session.workers.set_up()
        # An epoch of a fixed length is warm-up, but may be too short for an array's.
        session.settle(LEAST_WARM_UP if self.settings.budget_s else 0)

    def _take(self, session: Session[Point], rounds: int | None) -> None:
        """Take turns; tell what is known as it grows."""
        left_s = max(self._until_s - time.monotonic(), _LEAST_TURNS * (self.settings.budget_s or math.inf))
        session.take(self._order, rounds, left_s, lambda made: self._tell(session, made))

    def _tell(self, session: Session[Point], made: Rounds[Point]) -> None:
        done = max(len(blocks) for blocks in made.blocks.values())
        self.progress.now(f"round {done}", None)
        if done not in (1, _FIRST_LOOK) and done & (done - 1):  # at 1, 2, 3, 4, 8, 16, ...
            return
        self.progress.line(f"after {done} round{'s' * (done > 1)}:")
        for point in made.blocks:
            if any(made.counted(point)):
                found, own = session.known(point)[0], made.rate(point)
                told = ratio(found.value, found.low, found.high) if made.baseline else ""
                self.progress.line(f"  {point!s:<24}{rate(own.value, f'{self.unit}/s'):>22}  {told}".rstrip())

    def _all_failed(self, group: _Group, wanted: Collection[Point], failure: str, message: str) -> None:
        session = Session(TurnWorkers[Point](1.0), self.cores, self._goal(), None)
        going = _Going(group, session, Moment.now(), load_before=host.load_average())
        for point in group.points:
            name = f"{stamp()}-{self.settings.job}-{point.mode}-B{point.B}-{point.precision}-r{group.repeat}"
            going.folders[point] = self.record.begin_run(name)
        outcomes = {point: GroupOutcome.not_started(failure, message) for point in group.points}
        self._record(going, outcomes, [point for point in group.points if point in wanted], None)

    def _record(
        self, going: _Going, outcomes: Mapping[Point, GroupOutcome], points: Sequence[Point], monitor: Monitor | None
    ) -> None:
        """Write the records of some points, failures too; drop the folders of the others."""
        for point in points:
            directory = going.folders.pop(point)
            if monitor:
                monitor.write(directory)
            run = self._run(going, point, outcomes[point], monitor)
            with deferred():
                self.record.finish_run(directory, run)
            self.progress.line(f"{point}: {_said(run)}")
        if going.folders:
            self.record.drop_unfinished()

    def _run(self, going: _Going, point: Point, outcome: GroupOutcome, monitor: Monitor | None) -> RunRecord:
        asked = self._asked(going, point)
        session, results = going.session, outcome.results
        metrics, window, noted = (
            measured(session, point, results, self.unit, self._warm_up)
            if outcome.ok and session.turns.get(point)
            else ((), {}, ())
        )
        verdict = outcome.verdict
        if outcome.ok and not metrics:
            verdict = Verdict.failed("contaminated", "its baseline failed before it had a turn")
        processes = modes.get(point.mode).processes(point.B)
        places = replica_directories(Path(), processes)
        files = tuple((place / SAMPLES_FILE).as_posix() for place in places)
        return replace(
            asked, verdict=verdict, metrics=metrics, window=window, seconds=outcome.seconds, disturbances=noted,
            samples=Samples(files) if verdict.ok else None,
            data=data_source(results[0].get("provenance") if results else None) or "unknown",
            items_per_step=float(results[0].get("items_per_step", 0.0)) if results else 0.0,
            details={
                **asked.details, "load_before": going.load_before, "load_after": host.load_average(),
                "replicas": results, "monitor": monitor.record() if monitor else None,
            },
        )  # fmt: skip

    def _asked(self, going: _Going, point: Point) -> RunRecord:
        """Return the record of a run before it has begun: what it was told, and by what it is confined."""
        from .. import jobs

        settings, mode, state, repeat = (self.settings, modes.get(point.mode), self.record.state, going.group.repeat)
        described, versions = state["environment"]["machine"], state["environment"]["versions"]
        processes = mode.processes(point.B)
        configs = self.launcher.configs(point, repeat) if processes <= MAX_PROCESSES else []
        memory = (
            "RLIMIT_DATA, a share of the available memory for each process"
            if settings.device == "cpu"
            else "none: CUDA reserves more than it uses"
        )
        affinity = ",".join(map(str, self.cores.cpus)) if self.cores.shared else "as inherited"
        return RunRecord(
            id=new_id(), kind="workflow", plan_id=self.record.id, plan=settings.job, job=settings.job, mode=point.mode,
            precision=point.precision, B=point.B, repeat=repeat, verdict=Verdict.good(),
            machine=facts.machine(described), device=facts.device(settings.device, described), started=going.started,
            unit=self.unit, preset=settings.preset, seed=configs[0].seed if configs else settings.seed,
            job_version=facts.source_hash(jobs.get(settings.job, swept=True))[:12],
            changed=self.record.changed, batch_size=settings.batch_size,
            processes=processes, threads=self.launcher.threads(point.mode, point.B),
            isolation=Isolation("none", details={"affinity": affinity, "memory": memory}),
            versions=versions, commit=facts.commit(), asked=state.get("asked", {}), resolved=settings.to_dict(),
            details={
                "width": mode.width(point.B), "epochs": settings.epochs, "iters_per_epoch": settings.iters_per_epoch,
                "device_model": settings.device_model, "configs": [config.to_dict() for config in configs],
                "variables": self.launcher.environment(point), "machine": described, "cores": str(self.cores),
                "together": [str(each) for each in going.group.points],
                "equality": state["equality"].get(point.precision) if mode.width(point.B) else None,
            },
        )  # fmt: skip


def baseline_of(points: Collection[Point]) -> Point | None:
    """Return the point that all are compared with, if it is one of them."""
    base = Point(BASELINE[0], BASELINE[1], BASELINE[2])
    return base if base in points else None


def _said(run: RunRecord) -> str:
    if not run.ok:
        return f"{run.verdict.failure}: {run.verdict.message}"
    if run.window.get("verdict") == "inconclusive":  # no number is told beside it
        return "; ".join(sorted(run.disturbances, key=lambda note: not note.startswith("inconclusive")))
    told = next((m for m in run.metrics if m.name == "speedup"), None)
    times = f", {ratio(told.value, told.low, told.high)} times serial" if told else ""
    noted = f"  ({'; '.join(run.disturbances)})" if run.disturbances else ""
    return f"{rate(run.metrics[0].value, run.metrics[0].unit)}{times}{noted}"
