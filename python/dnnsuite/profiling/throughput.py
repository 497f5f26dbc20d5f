# SPDX-License-Identifier: MIT
"""Throughput of one job over batch sizes, without instruments: a process for each size, which take turns.

A log per batch size has TBD's line formats; one table has all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import jobs
from .._files import write_text
from .._lazy import pandas as pd
from .._runs import facts
from .._runs.folder import THROUGHPUT_FILE, PlanFolder, final, opened, refuse_other_settings
from .._runs.group import Direct, GroupOutcome
from .._runs.identity import identity_of
from .._runs.interrupts import deferred, interruptible
from .._runs.limits import memory_share_bytes
from .._runs.monitor import all_cores, free_cores
from .._runs.progress import Progress
from .._runs.rates import SAMPLES_FILE, Steps, read_steps
from .._runs.record import Metric, Moment, RunRecord, Samples
from .._runs.turn_session import BLOCK_S, Session
from .._runs.turn_workers import TurnWorkers
from .._runs.turns import Goal, Rounds
from .._shown import rate as shown_rate
from ..workflow.common_settings import text_of
from ..workflow.outputs import measured
from .throughput_request import Request

FOLDER, TABLE = "throughput_data", "throughput.csv"
_WINDOWS = 10  # of TimeHistory lines in a log, where there are fewer iterations than TBD's windows have
_TBD_WINDOW = 100  # iterations
_TBD_EVERY = 10  # iterations between two lines of TBD's PyTorch version


def log_of(root: Path, batch_size: int) -> Path:
    """Path of the log of a batch size."""
    return root / FOLDER / f"batch_{batch_size}.log"


def save_log(root: Path, run: RunRecord, directory: Path) -> None:
    """Write `throughput_data/batch_N.log` of a run; the log of the size's last run stays."""
    path = log_of(root, run.batch_size)
    path.parent.mkdir(exist_ok=True)
    if run.ok:
        lines = log_lines(read_steps(directory / SAMPLES_FILE).without_gaps(), run)
    else:
        lines = iter([f"{run.verdict.failure}: {run.verdict.message}"])
    write_text(path, "\n".join([*lines, ""]))


def log_lines(steps: Steps, run: RunRecord) -> Iterator[str]:
    """Lines as TBD's two versions print them: TimeHistory for each window, and the batch throughput so far.

    Averages are items over time; the original's PyTorch version averages rates, which overstates where steps differ.
    """
    per_step = run.items_per_step
    counts = [round(items / per_step) for items in steps.items]
    total, dropped = sum(counts), run.window["dropped"]
    window = min(_TBD_WINDOW, max(1, total // _WINDOWS))
    done, last, at_ns = 0, 0, int(steps.starts_ns[0])
    counted_ns, counted = 0, 0
    for i, count in enumerate(counts):
        took_ns = int(steps.stops_ns[i] - steps.starts_ns[i])
        done += count
        if i >= dropped:
            counted_ns, counted = counted_ns + took_ns, counted + count
            if done % _TBD_EVERY < count or i == len(counts) - 1:
                yield _progress(done, total, took_ns * 1e-9 / count, counted_ns * 1e-9 / counted, per_step)
        if done - last >= window or i == len(counts) - 1:
            seconds = (int(steps.stops_ns[i]) - at_ns) * 1e-9
            rate = (done - last) * per_step / seconds
            yield (f"TimeHistory: {seconds:.2f} seconds, {rate:.2f} examples/second between steps {last} and {done}")
            last, at_ns = done, int(steps.stops_ns[i])


def _progress(done: int, total: int, now_s: float, mean_s: float, per_step: float) -> str:
    place = f"[{done:{len(str(total))}d}/{total}]"
    rate = f"{per_step / now_s:6.3f} ({per_step / mean_s:6.3f}) samples/s"
    return f"Epoch: [0]{place}\tTime {now_s:6.3f} ({mean_s:6.3f})\tBatch throughput {rate}"


def save_table(folder: PlanFolder) -> pd.DataFrame:
    """Write `throughput.csv` of the finished runs: a row per batch size. They are of one request, so all are alike."""
    from .. import results

    made = results.by_batch_size(results.load(folder.root), allow_unlike=True)
    results.save_csv(made, folder.root / TABLE)
    return made


# A worker with torch reserves about so much before it makes its first tensor; sizes that have less run alone.
_LEAST_BYTES = 1 << 30


def measure(
    request: Request, out: Path, resume: bool = False, quiet: bool = False, allow_changed: Sequence[str] = ()
) -> pd.DataFrame:
    """Measure what is missing in `out`; return the table of :func:`dnnsuite.results.by_batch_size`, in items/s.

    All sizes of a repeat are started together and take turns. A size that fails is a row with the reason; the others
    are measured nevertheless. Ctrl-C loses only the repeat under way.

    Raises:
        InvalidArgument: `out` holds something else, or runs of another request or of other code of the job, which
            `allow_changed` does not name.
        OutputError: `out` cannot be written.
    """
    with interruptible(), opened(out, THROUGHPUT_FILE, resume) as folder, Progress(quiet=quiet) as progress:
        _claim(request, folder, allow_changed)
        try:
            _Measurement(request, folder, progress).finish()
        except BaseException as error:
            with deferred():
                folder.drop_unfinished()
                folder.end_early(error)
            raise
        folder.state["status"] = "done"
        folder.save()
        return save_table(folder)


class _Measurement:
    """The runs of a request that a directory lacks."""

    def __init__(self, request: Request, folder: PlanFolder, progress: Progress) -> None:
        self._request, self._folder, self._progress = request, folder, progress
        self._cores = free_cores(request.threads) if request.device == "cpu" else all_cores()
        made = {run.directory.name: run.record for run in folder.finished()[0] if final(run.record)}
        self._hopeless = {run.batch_size for run in made.values() if not run.ok}
        repeats = range(request.repeats or 1)
        self._left = [[size for size in request.batch_sizes if _name(size, r) not in made] for r in repeats]
        for name, record in made.items():  # a log that the end of an earlier process left out
            if not log_of(folder.root, record.batch_size).is_file():
                save_log(folder.root, record, folder.runs / name)
        total = len(request.batch_sizes) * len(repeats)
        left = sum(map(len, self._left))
        progress.stage(f"throughput of {request.job}: {left} of {total} runs, on {self._cores}")

    def finish(self) -> None:
        """Make all runs that are missing."""
        for repeat, sizes in enumerate(self._left):
            together = max(1, memory_share_bytes(1) // _LEAST_BYTES)
            groups = deque(sizes[i : i + together] for i in range(0, len(sizes), together))
            while groups:
                group = groups.popleft()
                for size in self._hopeless.intersection(group):  # a finding that would be the same again
                    self._progress.line(f"batch size {size}, run {repeat + 1}: left out, it failed before")
                if group := [size for size in group if size not in self._hopeless]:
                    groups.extendleft([size] for size in self._take(group, repeat))

    def _take(self, sizes: Sequence[int], repeat: int) -> list[int]:
        """Measure some sizes in turns; return those that found no memory beside the others."""
        request, started = self._request, Moment.now()
        singles = {size: request.single(size, repeat, self._cores) for size in sizes}
        memory = memory_share_bytes(len(sizes))
        goal = Goal(request.target or 0.01, budget_s=(request.budget_s or math.inf) * len(sizes), floor=0.0)
        with TurnWorkers[int](request.timeout_s, self._progress.tick) as workers:
            directories = {size: self._folder.begin_run(_name(size, repeat)) for size in sizes}
            for size, single in singles.items():
                workers.start(size, [single.spec(directories[size], memory)], [single.variables], Direct(memory))
            workers.set_up()
            session = Session(workers, self._cores, goal, None, request.seed + repeat)
            session.rounds.warm_up = request.warm_up_blocks()
            if request.stop_iteration is None:
                session.settle()
                session.take(lambda number: {"seconds": BLOCK_S}, tell=self._tell)
            else:
                chunks = request.chunks()
                session.take(lambda number: {"steps": chunks[number]}, len(chunks), math.inf, self._tell)
            outcomes = session.end()
        crowded = [size for size in sizes if len(sizes) > 1 and outcomes[size].verdict.failure == "oom"]
        for size in sizes:
            if size not in crowded:
                self._finish(singles[size], size, directories[size], started, session, outcomes[size])
        self._folder.drop_unfinished()
        return crowded

    def _tell(self, made: Rounds[int]) -> None:
        self._progress.now(f"round {max(map(len, made.blocks.values()))}", None)

    def _finish(
        self, single: Any, size: int, directory: Path, started: Moment, session: Session[int], outcome: GroupOutcome
    ) -> None:
        result = outcome.results[0] if outcome.workers else {}
        run = single.record(self._folder, started, outcome, result)
        details = {name: result[name] for name in ("process", "provenance") if name in result}
        run = replace(run, details=details, changed={**run.changed, **self._folder.changed})
        if run.ok:
            run = _with_figures(run, session, size, result, fixed=self._request.stop_iteration is not None)
        place = single.finish(self._folder, directory, run)
        if (final(run) and not run.ok) or run.verdict.failure == "refused":
            self._hopeless.add(size)
        with deferred():
            save_log(self._folder.root, run, place)
            save_table(self._folder)
        self._progress.done(_told(run))


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


def _claim(request: Request, folder: PlanFolder, allowed: Sequence[str]) -> None:
    """Note what decides the numbers, or refuse to mix them with others: the request, and the code of the job."""
    asked, environment = request.to_dict(), facts.environment()
    refuse_other_settings(folder.root, facts.changes(folder.state.get("environment", environment), environment))
    plain = {name: text_of(value) for name, value in asked.items() if name not in _FREE}
    folder.identify(identity_of({"code": jobs.get(request.job)}, plain), allowed)
    folder.state.update({"asked": asked, "environment": environment, "status": "running"})
    folder.save()


def _with_figures(
    record: RunRecord, session: Session[int], size: int, result: Mapping[str, Any], fixed: bool
) -> RunRecord:
    """Return the record with what the turns say; so many iterations are as many as were asked for, known or not."""
    metrics, window, noted = measured(session, size, [result], result["unit"], session.rounds.warm_up)
    if fixed and not session.disturbed(size):
        noted = tuple(each for each in noted if not each.startswith(("inconclusive", "rough")))
    turns = session.turns[size]
    steps = [sum(len(steps) for steps in turn.replicas) for _, turn in sorted(turns.items())]
    dropped = sum(steps[: session.rounds.warm_up])
    return replace(
        record,
        unit=result["unit"],
        items_per_step=float(result["items_per_step"]),
        metrics=(*metrics, _memory(result["process"])),
        samples=Samples((SAMPLES_FILE,)),
        disturbances=(*noted, *([] if result["finite"] else ["a loss is not finite"])),
        window={**window, "dropped": dropped, "kept": sum(steps) - dropped},
    )


def _memory(process: Mapping[str, Any]) -> Metric:
    on_gpu = "peak_cuda_bytes" in process
    what = "largest memory that torch's allocator gave out" if on_gpu else "largest resident set of the process"
    peak = process["peak_cuda_bytes" if on_gpu else "peak_rss_bytes"]
    return Metric("memory/peak", peak, "bytes", definition=what)
