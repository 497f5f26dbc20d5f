# SPDX-License-Identifier: MIT
"""Throughput of one job over batch sizes, without instruments: a process per size and repeat, in turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._runs import facts, rates
from .._runs.folder import THROUGHPUT_FILE, PlanFolder, opened
from .._runs.interrupts import deferred, interruptible
from .._runs.order import interleave
from .._runs.progress import Durations, Progress
from .._runs.rates import Steps
from .._runs.record import Metric, RunRecord, Samples
from .._runs.resume import final, refuse_other_settings
from .._runs.samples import SAMPLES_FILE, read_steps
from .._shown import rate as shown_rate
from .throughput_files import log_of, save_log, save_table
from .throughput_request import Request

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["measure"]

_ENDED = {
    "noisy": "the rate fluctuates: no longer run narrows its interval",
    "timeout": "not converged within the budget",
}


def measure(request: Request, out: Path, resume: bool = False, quiet: bool = False) -> pd.DataFrame:
    """Make the runs that `out` does not have yet; return the table of :func:`dnnsuite.results.by_batch_size`.

    A size that fails is a row; the others are measured all the same. After each run its log and the table are written,
    so that Ctrl-C loses the run under way alone.

    Raises:
        InvalidArgument: `out` holds something else, or runs of another request.
        OutputError: `out` cannot be written.
    """
    with interruptible(), opened(out, THROUGHPUT_FILE, resume) as folder, Progress(quiet=quiet) as progress:
        _claim(request, folder)
        try:
            _Measurement(request, folder, progress).finish()
        except BaseException as error:
            with deferred():
                folder.end_early(error)
            raise
        folder.state["status"] = "done"
        folder.save()
        return save_table(folder)


class _Measurement:
    """The runs of a request that a directory lacks."""

    def __init__(self, request: Request, folder: PlanFolder, progress: Progress) -> None:
        self._request, self._folder, self._progress = request, folder, progress
        self._durations = Durations[int]()
        made = {run.directory.name: run.record for run in folder.finished()[0] if final(run.record)}
        self._hopeless = {run.batch_size for run in made.values() if not run.ok}
        turns = interleave(request.batch_sizes, request.repeats or 1, request.seed)
        self._left = [(size, repeat) for repeat, size in turns if _name(size, repeat) not in made]
        for name, record in made.items():  # a log that the end of an earlier process left out
            if not log_of(folder.root, record.batch_size).is_file():
                save_log(folder.root, record, folder.runs / name)
        total = len(request.batch_sizes) * (request.repeats or 1)
        progress.stage(f"throughput of {request.job}: {len(self._left)} of {total} runs", len(self._left))

    def finish(self) -> None:
        """Make all runs that are missing."""
        for i, (size, repeat) in enumerate(self._left):
            if size in self._hopeless:  # a finding that would be the same again
                self._progress.done(f"batch size {size}, run {repeat + 1}: left out, it failed before")
                continue
            self._progress.now(f"batch size {size}", self._expect_s(i))
            run = self._one(size, repeat)
            self._progress.done(_told(run), self._expect_s(i + 1))

    def _one(self, size: int, repeat: int) -> RunRecord:
        run, directory = self._request.single(size, repeat).run(
            self._folder, _name(size, repeat), lambda _: self._progress.tick(), _figures
        )
        self._durations.add(size, run.seconds)
        if not run.ok and final(run):
            self._hopeless.add(size)
        with deferred():
            save_log(self._folder.root, run, directory)
            save_table(self._folder)
        return run

    def _expect_s(self, done: int) -> float | None:
        """Seconds that the runs from `done` on will take."""
        return self._durations.expect_s([size for size, _ in self._left[done:] if size not in self._hopeless])


def _name(size: int, repeat: int) -> str:
    return f"batch_{size}-r{repeat}"


def _told(run: RunRecord) -> str:
    where = f"batch size {run.batch_size}, run {run.repeat + 1}"
    if not run.ok:
        return f"{where}: {run.verdict.failure}, {run.verdict.message}"
    rate = run.metrics[0]
    noted = f"  ({'; '.join(run.disturbances)})" if run.disturbances else ""
    return f"{where}: {shown_rate(rate.value, rate.unit)}{noted}"


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
    """Return the record with what the worker's samples say."""
    details = {name: result[name] for name in ("process", "provenance", "reason") if name in result}
    if not record.ok:
        return replace(record, details=details)
    steps, kept = _steps(directory / SAMPLES_FILE)
    found = rates.interval([kept])
    value = rates.rate([kept])
    per_step = result["items_per_step"]
    flags = [] if result["finite"] else ["a loss is not finite"]
    if told := _ended(result["status_of_rate"], found, 2 * record.asked["target"] * value):
        flags.append(told)
    what = "items / time of the counted steps, data wait included"
    return replace(
        record,
        unit=result["unit"],
        items_per_step=float(per_step),
        metrics=(
            Metric("throughput", value, f"{result['unit']}/s", found.low, found.high, definition=what),
            Metric("time/step", per_step / value, "s"),
            _memory(result["process"]),
        ),
        samples=Samples(),
        disturbances=tuple(flags),
        window={
            "dropped": len(steps) - len(kept), "kept": len(kept), "blocks_lag1": found.lag1,
            "no_interval": found.why,
            "start_ns": int(kept.starts_ns[0]), "stop_ns": int(kept.stops_ns[-1]),
        },
        details=details,
    )  # fmt: skip


def _ended(status: str, found: rates.RateInterval, asked: float) -> str:
    """Warning about an interval that is wider than `asked`; empty where there is nothing to warn of."""
    if found.low is not None and found.high is not None and found.high - found.low <= asked:
        return ""
    return _ENDED.get(status, "")


def _steps(path: Path) -> tuple[Steps, Steps]:
    """Return (all observations, those that count)."""
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
