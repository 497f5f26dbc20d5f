# SPDX-License-Identifier: MIT
"""Throughput of one job over batch sizes, without instruments: a process per size and repeat, in turns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._runs import facts, rates
from .._runs.device import choose_device
from .._runs.folder import THROUGHPUT_FILE, PlanFolder, opened
from .._runs.interrupts import deferred, interruptible
from .._runs.order import interleave
from .._runs.plugins import import_plugins
from .._runs.progress import Durations, Progress
from .._runs.rates import BLOCKS, Steps
from .._runs.record import Metric, RunRecord, Samples
from .._runs.resume import final, refuse_other_settings
from .._runs.samples import SAMPLES_FILE, read_steps
from ..errors import InvalidArgument
from . import batch_sizes
from .single_run import SingleRun, plugins_for
from .throughput_files import log_of, save_log, save_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PRESETS", "TBD_SIZES", "Request", "measure"]

PRESETS = ("quick", "full")
TBD_SIZES = (1, 2, 4, 8, 16, 32, 64, 96, 128)  # of the original's measure_throughput.sh
_QUICK_SIZES = (1, 2, 4, 8)
_FIRST_WINDOW = 100  # iterations that the original leaves out
_ENDED = {
    "noisy": "the rate fluctuates: no longer run narrows its interval",
    "timeout": "not converged within the budget",
}


@dataclass(frozen=True)
class Request:
    """Everything that decides what is measured; equal requests share a directory.

    Attributes:
        batch_sizes: of which each is measured; empty for TBD's nine, with `quick` for 1, 2, 4, 8.
        preset: quick (a smaller model, seconds a run) or full.
        stop_iteration: TBD's protocol: so many iterations, of which those from `start_iteration` on count. None: until
            the rate is known to `target`, the half width of its 95 % interval over it (by default 0.01, with `quick`
            0.05), or `budget_s` is spent.
        start_iteration: by default 100, TBD's first window, but never more than half.
        repeats: processes per batch size, in turns; by default 3, one with `stop_iteration`, two with `quick`.
        budget_s: seconds of timed steps in one process; by default 60, with `quick` 4.
        options: the job's own.
    """

    job: str
    batch_sizes: tuple[int, ...] = ()
    preset: str = "full"
    stop_iteration: int | None = None
    start_iteration: int | None = None
    repeats: int | None = None
    target: float | None = None
    budget_s: float | None = None
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

    def with_options(self, texts: Sequence[str]) -> Request:
        """Itself with options of the job, `NAME=VALUE`.

        Raises:
            InvalidArgument: the job has no such option, or a value is of another kind.
        """
        from .. import jobs
        from ..workflow.job_options import parse_options

        import_plugins(plugins_for(self.job, self.plugins), [os.getcwd()])
        return replace(self, options=parse_options(texts, _option_defaults(jobs.get(self.job)), self.job))

    def checked(self) -> Request:
        """Itself, with everything resolved.

        Raises:
            InvalidArgument: a value is refused; the message says what is accepted.
            Unavailable: the device is not there.
        """
        from .. import jobs

        if self.preset not in PRESETS:
            raise InvalidArgument(f"--preset {self.preset}: accepted: {', '.join(PRESETS)}")
        plugins = plugins_for(self.job, self.plugins)
        import_plugins(plugins, [os.getcwd()])
        Job = jobs.get(self.job)
        quick = self.preset == "quick"
        device = choose_device(self.device)
        made = replace(
            self,
            device=device,
            plugins=plugins,
            batch_sizes=self.batch_sizes or (_QUICK_SIZES if quick else TBD_SIZES),
            options={**_preset_options(Job, self.preset, device), **self.options},
            repeats=self.repeats or (1 if self.stop_iteration else 2 if quick else 3),
            target=self.target or (0.05 if quick else 0.01),
            budget_s=self.budget_s or (4.0 if quick else 60.0),
            start_iteration=self._start(),
        )
        made._check()
        for size in made.batch_sizes:
            Job(made.config(size, 0))  # refuses what it does not take
        return made

    def _start(self) -> int | None:
        if self.stop_iteration is None or self.start_iteration is not None:
            return self.start_iteration
        return min(_FIRST_WINDOW, self.stop_iteration // 2)

    def _check(self) -> None:
        batch_sizes.refuse_twice(self.batch_sizes)
        for name, value in (("--repeats", self.repeats), ("--stop-iteration", self.stop_iteration)):
            if value is not None and value < 1:
                raise InvalidArgument(f"{name} {value}: must be at least 1")
        if self.budget_s is not None and not 0 < self.budget_s < float("inf"):
            raise InvalidArgument(f"--budget {self.budget_s}: must be a positive number of seconds")
        if self.target is not None and not 0 < self.target < 1:
            raise InvalidArgument(f"--target {self.target}: a part of the rate, as 0.01 for 1 %")
        if self.start_iteration is None:
            return
        if self.stop_iteration is None:
            raise InvalidArgument("--start-iteration goes with --stop-iteration")
        if not 0 <= self.start_iteration < self.stop_iteration:
            raise InvalidArgument(
                f"--start-iteration {self.start_iteration}: from 0 to {self.stop_iteration - 1}, before "
                "--stop-iteration"
            )

    def config(self, size: int, repeat: int) -> Any:
        """The configuration of one process."""
        from .. import jobs

        return jobs.JobConfig(
            B=self.B,
            device=self.device,
            precision=self.precision,
            batch_size=size,
            seed=self.seed + repeat,
            data_seed=self.seed,
            data=self.data,
            dataroot=self.dataroot,
            threads=self.threads,
            options=dict(self.options),
        )

    def single(self, size: int, repeat: int) -> SingleRun:
        """The run of one process."""
        order = ("stop_iteration", "start_iteration", "target", "budget_s")
        variables: dict[str, str] = {}
        if self.threads:
            variables |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(self.threads))
        if self.device != "cpu" and self.precision == "fp32":
            variables["NVIDIA_TF32_OVERRIDE"] = "0"  # fp32 means fp32
        return SingleRun(
            "throughput",
            f"throughput of {self.job}",
            "dnnsuite.profiling.throughput_task:rate",
            self.job,
            self.config(size, repeat),
            {name: getattr(self, name) for name in order},
            self.plugins,
            self.timeout_s,
            self.to_dict(),
            repeat,
            self.preset,
            variables,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }


_PROTOCOL = ("batch_size", "repeat", "number")  # among a suite job's defaults, not options


def _option_defaults(job: Any) -> Mapping[str, Any] | None:
    """The job's options and their defaults; None where only the job itself knows them."""
    if hasattr(job, "option_defaults"):
        found: Mapping[str, Any] | None = job.option_defaults()
        return found
    if not hasattr(job, "defaults"):
        return None
    return {name: value for name, value in job.defaults.items() if name not in _PROTOCOL}


def _preset_options(job: Any, preset: str, device: str) -> dict[str, Any]:
    """The job's options in a preset: a suite's job has `smoke`, a fused one presets, a user's perhaps neither."""
    if preset == "full":
        return {}
    if hasattr(job, "preset"):
        return dict(job.preset("quick", device).get("options") or {})
    return {name: value for name, value in getattr(job, "smoke", {}).items() if name not in _PROTOCOL}


def measure(request: Request, out: Path, resume: bool = False, quiet: bool = False) -> pd.DataFrame:
    """Measure what `out` does not have yet; the table of :func:`dnnsuite.results.by_batch_size`.

    A size that fails is a row; the others are measured all the same. After each run its log and the table are written,
    so that Ctrl-C loses the run under way alone.

    Raises:
        InvalidArgument: `out` holds something else, or runs of another request.
        OutputError: `out` cannot be written.
    """
    with interruptible(), opened(out, THROUGHPUT_FILE, resume) as folder, Progress(quiet=quiet) as progress:
        _claim(request, folder)
        plan = [
            (size, repeat)
            for repeat, size in interleave(request.batch_sizes, request.repeats or 1, request.seed)
        ]
        made = {run.directory.name: run.record for run in folder.finished()[0] if final(run.record)}
        for run_name, record in made.items():  # a log that the end of an earlier process left out
            if not log_of(folder.root, record.batch_size).is_file():
                save_log(folder.root, record, folder.runs / run_name)
        left = [each for each in plan if _name(*each) not in made]
        progress.stage(f"throughput of {request.job}: {len(left)} of {len(plan)} runs", len(left))
        table = save_table(folder) if made else None
        hopeless = {run.batch_size for run in made.values() if not run.ok}
        durations = Durations[int]()
        try:
            for i, (size, repeat) in enumerate(left):
                if size in hopeless:  # a finding that would be the same again
                    progress.done(f"batch size {size}, run {repeat + 1}: left out, it failed before")
                    continue
                progress.now(f"batch size {size}", durations.expect_s([each[0] for each in left[i:]]))
                run, directory = request.single(size, repeat).run(
                    folder, _name(size, repeat), lambda _: progress.tick(), _figures
                )
                durations.add(size, run.seconds)
                if not run.ok and final(run):
                    hopeless.add(size)
                with deferred():
                    save_log(folder.root, run, directory)
                    table = save_table(folder)
                progress.done(_told(run), durations.expect_s([each[0] for each in left[i + 1 :]]))
        except BaseException as error:
            with deferred():
                folder.end_early(error)
            raise
        folder.state["status"] = "done"
        folder.save()
        assert table is not None, "no run"
        return table


def _name(size: int, repeat: int) -> str:
    return f"batch_{size}-r{repeat}"


def _told(run: RunRecord) -> str:
    where = f"batch size {run.batch_size}, run {run.repeat + 1}"
    if not run.ok:
        return f"{where}: {run.verdict.failure}, {run.verdict.message}"
    rate = run.metrics[0]
    noted = f"  ({'; '.join(run.disturbances)})" if run.disturbances else ""
    return f"{where}: {rate.value:.5g} {rate.unit}{noted}"


# What may be other when a directory is continued.
_FREE = ("timeout_s", "repeats", "batch_sizes")


def _claim(request: Request, folder: PlanFolder) -> None:
    """Note the request, or refuse to mix it with another."""
    now = request.to_dict()
    then = folder.state.get("asked", now)
    environment = facts.environment()
    was = folder.state.get("environment", environment)
    odd = facts.changes(was, environment)
    refuse_other_settings(
        folder.root,
        odd
        + [
            f"{name} was {then.get(name)}, is {now[name]}"
            for name in now
            if name not in _FREE and then.get(name) != now[name]
        ],
    )
    folder.state.update({"asked": now, "environment": environment, "status": "running"})
    folder.save()


def _figures(record: RunRecord, result: Mapping[str, Any], directory: Path) -> RunRecord:
    """The record with what the worker's samples say."""
    details = {name: result[name] for name in ("process", "provenance", "reason") if name in result}
    if not record.ok:
        return replace(record, details=details)
    steps, kept = _steps(directory / SAMPLES_FILE)
    low, high, lag1 = rates.interval([kept], min(BLOCKS, len(kept)))
    value = rates.rate([kept])
    per_step = result["items_per_step"]
    flags = [] if result["finite"] else ["a loss is not finite"]
    wide = low is None or high is None or high - low > 2 * record.asked["target"] * value
    if wide and (told := _ENDED.get(result["status_of_rate"])):
        flags.append(told)
    what = "items / time of the counted steps, data wait included"
    return replace(
        record,
        unit=result["unit"],
        items_per_step=float(per_step),
        metrics=(
            Metric("throughput", value, f"{result['unit']}/s", low, high, definition=what),
            Metric("time/step", per_step / value, "s"),
            _memory(result["process"]),
        ),
        samples=Samples(),
        disturbances=tuple(flags),
        window={
            "dropped": len(steps) - len(kept), "kept": len(kept), "blocks_lag1": lag1,
            "start_ns": int(kept.starts_ns[0]), "stop_ns": int(kept.stops_ns[-1]),
        },
        details=details,
    )  # fmt: skip


def _steps(path: Path) -> tuple[Steps, Steps]:
    """(all observations, those that count)."""
    import numpy as np

    steps = read_steps(path)
    rows = path.read_text(encoding="utf-8").splitlines()
    column = rows[0].split(",").index("phase")
    kept = np.array([row.split(",")[column] == "train" for row in rows[1:]])
    return steps, Steps(steps.starts_ns[kept], steps.stops_ns[kept], steps.items[kept], steps.epochs[kept])


def _memory(process: Mapping[str, Any]) -> Metric:
    if "peak_cuda_bytes" in process:
        what = "largest memory that torch's allocator gave out"
        return Metric("memory/peak", process["peak_cuda_bytes"], "bytes", definition=what)
    what = "largest resident set of the process"
    return Metric("memory/peak", process["peak_rss_bytes"], "bytes", definition=what)
