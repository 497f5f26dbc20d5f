# SPDX-License-Identifier: MIT
"""A comparison of convergence: a user's options with every default resolved and every value checked, the three
trainings, one run each, and the conclusion from them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._files import read_sealed, sealed, write_text
from ..._runs import facts
from ..._runs.folder import WORKFLOW_FILE, PlanFolder, final, opened, refuse_other_settings, stamp
from ..._runs.group import Direct, GroupOutcome
from ..._runs.interrupts import Interrupted, deferred, interruptible
from ..._runs.limits import memory_share_bytes
from ..._runs.progress import Progress
from ..._runs.record import VERSION, Isolation, Metric, Moment, RunRecord, data_source, new_id
from ..._runs.spec import WorkerSpec
from ..._runs.turn_workers import run_group
from ..._runs.worker import Siblings
from ...errors import InvalidArgument
from ...profiler.monitor import Monitor
from ..common_settings import CommonSettings, at_least, one_of, options_by_name, resolve_common
from ..plan import weigh
from .verdict import Verdict, Ways, judge, write_outputs

if TYPE_CHECKING:
    from rich.console import Console

# Options that a user may give, by the names of their fields.
OPTIONS = frozenset(
    {
        "job", "lrs", "models", "plugins", "preset", "device", "precision", "epochs", "iters_per_epoch",
        "batch_size",
    }
    | {"seed", "data", "dataroot", "threads", "timeout_s", "options", "smooth"}
)  # fmt: skip
# Epochs and iterations per epoch; `paper` is HFTA's protocol: CIFAR-10 in batches of 128.
_LENGTHS = {"quick": (3, 20), "default": (3, 20), "paper": (100, 391)}
_QUICK = {"resnet": {"width": 8}}  # so that it takes less than a minute on two cores
_HFTA_RATES = (0.002, 0.001, 0.0005)
_MODELS = 3
_DEFAULTS = {"batch_size": 32, "timeout_s": 24 * 3600.0}


@dataclass(frozen=True)
class ConvergenceSettings(CommonSettings):
    """Settings that decide what is compared."""

    precision: str
    lrs: list[float]
    smooth: int

    @property
    def iterations(self) -> int:
        """Iterations of each model."""
        return self.epochs * self.iters_per_epoch


def resolve(asked: Mapping[str, Any]) -> ConvergenceSettings:
    """Resolve the settings from the options given, the job's preset and the machine; None or absent means not given.

    Raises:
        InvalidArgument: a value is refused; the message says what is accepted.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    lengths = _LENGTHS.get(given.get("preset", "default"), _LENGTHS["default"])
    length = {"epochs": lengths[0], "iters_per_epoch": lengths[1]}
    kind, _, common = resolve_common(given.get("job", "resnet"), {**length, **given}, _DEFAULTS, _QUICK)
    precision = one_of("precision", given.get("precision", "fp32"), list(kind.precisions(common["device"])))
    iterations = common["epochs"] * common["iters_per_epoch"]
    return ConvergenceSettings(
        **common,
        precision=precision,
        lrs=_rates(kind.name, given.get("lrs"), given.get("models")),
        smooth=at_least("smooth", given.get("smooth", max(1, min(100, iterations // 20)))),
    )


def _rates(job: str, lrs: Sequence[Any] | None, models: int | None) -> list[float]:
    """Learning rates, one per model, each another one: they name the columns of the table."""
    if lrs:
        values = [_rate(part) for each in lrs for part in str(each).split(",") if part.strip()]
    else:
        values = list(_HFTA_RATES) if job == "resnet" and models in (None, _MODELS) else []
    if models is not None and values and len(values) != at_least("models", models):
        raise InvalidArgument(f"--models {models} and --lrs with {len(values)} values: give one per model")
    if not values:
        from ...jobs.trajectories import default_rates

        values = default_rates(job, at_least("models", _MODELS if models is None else models))
    if len(set(values)) < len(values):
        raise InvalidArgument(f"--lrs {','.join(f'{v:g}' for v in values)}: each model needs another one")
    return values


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InvalidArgument(f"--lrs {text}: expected numbers, e.g. .002,.001,.0005") from None
    if not 0 < value < math.inf:
        raise InvalidArgument(f"--lrs {text}: a learning rate is a positive number")
    return value


TRAJECTORY_FILE = "trajectory.json"


def train(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    """Train as `spec.details["way"]` says, and write `trajectory.json`."""
    from ...jobs import JobConfig, trajectories

    asked = spec.details
    found = trajectories.train(
        spec.job, JobConfig.from_dict(spec.config), asked["way"], asked["iterations"],
        asked["iters_per_epoch"], siblings.wait,
    )  # fmt: skip
    kept = {"losses": found.losses, "start": found.start, "end": found.end, "accuracy": found.accuracy}
    write_text(spec.folder / TRAJECTORY_FILE, sealed(kept, 1))
    return {"provenance": found.provenance}


NAME = "convergence"
WAYS = {"serial": "models one by one", "control": "models one by one, in float64", "hfta": "models as one array"}


@dataclass
class ConvergenceReport:
    """Result of a comparison. `verdict` is None where a training did not finish."""

    root: Path
    settings: ConvergenceSettings
    verdict: Verdict | None
    files: list[Path]
    problems: list[str]

    @property
    def ok(self) -> bool:
        """True if all finished, and the array trains as its models do."""
        return not self.problems


def run(
    out: str | Path, resume: bool = False, console: Console | None = None, quiet: bool = False, **options: Any
) -> ConvergenceReport:
    """Compare convergence into directory `out`: the same as `dnnsuite workflow convergence`.

    Args:
        out: output directory; empty or absent, or with `resume` one to continue.
        options: `job`, `lrs`, `models`, `epochs`, `iters_per_epoch`, `precision` and the others of the command.

    Raises:
        InvalidArgument, Unavailable, OutputError: as their messages say; finished trainings are kept.
        Interrupted: a signal came; finished trainings are kept, no worker is left.
    """
    options = options_by_name(options, OPTIONS)
    root = Path(out)
    settings = None if resume else resolve(options)
    if settings is not None:
        weigh(settings)
    with interruptible(), opened(root, WORKFLOW_FILE, resume) as folder:
        if settings is None:
            settings = _continued(folder, options)
        else:
            _begin(folder, settings, options)
        try:
            with Progress(console, quiet) as progress:
                return _Comparison(folder, settings, progress).execute()
        except Interrupted as interrupted:
            folder.end_early(interrupted)
            raise


def _begin(folder: PlanFolder, settings: ConvergenceSettings, asked: Mapping[str, Any]) -> None:
    folder.identify(settings.identity())
    folder.state.update({
        "format": VERSION, "workflow": NAME, "settings": settings.to_dict(), "environment": facts.environment(),
        "status": "running", "asked": {name: value for name, value in asked.items() if value is not None},
        "created": stamp(),
    })  # fmt: skip
    folder.save()


def _continued(folder: PlanFolder, asked: Mapping[str, Any]) -> ConvergenceSettings:
    """Return the recorded settings, if what is asked for now and the machine agree with them."""
    if folder.state.get("workflow") != NAME:
        raise InvalidArgument(f"--resume: {folder.root} is not a comparison of convergence; choose another --out")
    given = {name: value for name, value in asked.items() if value is not None}
    now = resolve({**folder.state["asked"], **given})
    refuse_other_settings(folder.root, facts.changes(folder.state["environment"], facts.environment()))
    folder.identify(now.identity(), allowed=None)  # the three are compared with each other
    folder.state["status"] = "running"
    return now


class _Comparison:
    """The three trainings in one directory; those that an earlier process has finished are not done again."""

    def __init__(self, folder: PlanFolder, settings: ConvergenceSettings, progress: Progress) -> None:
        self.folder, self.settings, self.progress = folder, settings, progress
        self.problems: list[str] = []

    def execute(self) -> ConvergenceReport:
        done = {run.record.mode for run in self.folder.finished()[0] if final(run.record)}
        left = [way for way in WAYS if way not in done]
        self.progress.stage(f"{len(left)} of {len(WAYS)} trainings to do", len(left))
        for way in left:
            self.progress.now(WAYS[way], None)
            record = self._train(way)
            said = "" if record.ok else f"{record.verdict.failure}: {record.verdict.message}"
            self.progress.done(f"{WAYS[way]}: {said or f'{record.seconds:.1f} s'}")
            if not record.ok:
                break
        return self._conclude()

    def _train(self, way: str) -> RunRecord:
        settings = self.settings
        started, began_s = Moment.now(), time.monotonic()
        directory = self.folder.begin_run(f"{stamp()}-{settings.job}-{way}-{settings.precision}-r0")
        config = self._config()
        details = {"way": way, "iterations": settings.iterations, "iters_per_epoch": settings.iters_per_epoch}
        on_cpu = settings.device == "cpu"
        share = memory_share_bytes(1)
        spec = WorkerSpec(
            "dnnsuite.workflow.convergence.plan:train", str(directory), settings.job, config, details,
            tuple(settings.plugins), (os.getcwd(),), memory_limit_bytes=share if on_cpu else None,
        )  # fmt: skip
        environment, tick = [self._environment()], self.progress.tick
        with Monitor(gpus=not on_cpu) as monitor:
            outcome = run_group([spec], environment, settings.timeout_s, Direct(share), "end", tick, monitor.follow)
        monitor.write(directory)
        record = self._record(way, config, started, outcome, time.monotonic() - began_s)
        if outcome.ok:
            last = read_sealed(directory / TRAJECTORY_FILE)["losses"][-1]
            metrics = (
                Metric("loss/final", float("nan") if value is None else value, "", replica=index)
                for index, value in enumerate(last)
            )
            record = replace(record, metrics=tuple(metrics))
        with deferred():
            self.folder.finish_run(directory, record)
        return record

    def _config(self) -> dict[str, Any]:
        from ...jobs import JobConfig

        settings = self.settings
        return JobConfig(
            B=len(settings.lrs), device=settings.device, precision=settings.precision,
            batch_size=settings.batch_size, seed=settings.seed, data_seed=settings.seed, hyper={"lr": settings.lrs},
            data=settings.data, dataroot=settings.dataroot, threads=settings.threads, options=settings.options,
        ).to_dict()  # fmt: skip

    def _environment(self) -> dict[str, str]:
        threads = str(self.settings.threads)
        chosen = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
        if self.settings.device == "cuda":
            chosen["NVIDIA_TF32_OVERRIDE"] = "0"
        return chosen

    def _record(
        self, way: str, config: Mapping[str, Any], started: Moment, outcome: GroupOutcome, seconds: float
    ) -> RunRecord:
        from ... import jobs

        settings, state = self.settings, self.folder.state
        described = state["environment"]["machine"]
        provenance = outcome.results[0].get("provenance") if outcome.results else None
        return RunRecord(
            id=new_id(), kind="training", plan_id=self.folder.id, plan=NAME, job=settings.job, mode=way,
            precision=settings.precision, B=len(settings.lrs) if way == "hfta" else 1, repeat=0,
            verdict=outcome.verdict, machine=facts.machine(described),
            device=facts.device(settings.device, described), started=started,
            unit=jobs.get(settings.job).unit, seconds=seconds, preset=settings.preset,
            seed=settings.seed, job_version=facts.source_hash(jobs.get(settings.job))[:12],
            batch_size=settings.batch_size, threads=settings.threads, isolation=Isolation("none"),
            versions=state["environment"]["versions"], commit=facts.commit(), asked=state.get("asked", {}),
            resolved=settings.to_dict(), data=data_source(provenance) or "unknown",
            details={"config": dict(config), "replicas": outcome.results, "way": WAYS[way]},
        )  # fmt: skip

    def _conclude(self) -> ConvergenceReport:
        runs = {run.record.mode: run for run in self.folder.finished()[0]}
        for way, found in runs.items():
            if not found.record.ok:
                failed = found.record.verdict
                self.problems.append(f"{WAYS[way]}: {failed.failure}: {failed.message}")
        verdict, files = None, []
        if not self.problems:
            read = trajectories(self.folder.root)
            verdict = _judged(read, self.settings)
            files = write_outputs(self.folder.root, self.settings, read, verdict)
            if not verdict.same:
                self.problems.append(f"{self.settings.job} {self.settings.precision}: {verdict}")
        state = self.folder.state
        state["verdict"] = None if verdict is None else verdict.to_dict()
        state["status"] = "failed" if self.problems else "done"
        state["problems"] = self.problems
        self.folder.save()
        return ConvergenceReport(self.folder.root, self.settings, verdict, files, self.problems)


def trajectories(root: Path) -> dict[str, dict[str, Any]]:
    """Return the results of each finished training in `root` by its way: losses, start, end, accuracy."""
    from ..._runs.reading import read_runs

    return {
        run.record.mode: read_sealed(run.directory / TRAJECTORY_FILE)
        for run in read_runs(root / "runs")[0]
        if run.record.ok
    }


def _judged(read: Mapping[str, Mapping[str, Any]], settings: ConvergenceSettings) -> Verdict:
    def ways(name: str) -> Ways:
        return Ways(*(read[way][name] for way in WAYS))

    accuracy = None if read["serial"]["accuracy"] is None else ways("accuracy")
    return judge(ways("losses"), read["serial"]["start"], ways("end"), accuracy, settings.precision, settings.smooth)
