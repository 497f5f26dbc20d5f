# SPDX-License-Identifier: MIT
"""A suite on a cluster: each job of each run is a task of its scheduler, on whatever node that gives it.

The scheduler is reached through submitit: a Slurm job array, processes of this machine (`local`), or this process
(`debug`). Every task runs a part of the suite into a directory of its own, as `dnnsuite run` would on that node; the
directory of the whole is a folder of suites, which is what `dnnsuite report` reads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import read_json
from .._runs.folder import CLUSTER_FILE as CLUSTER_FILE
from .._runs.folder import SUITE_FILE, PlanFolder, opened
from .._runs.interrupts import deferred, interruptible
from .._runs.reading import read_runs
from ..errors import InvalidArgument, Unavailable
from ._run import run_suite
from ._seed_format import summary_line, total_line
from ._settings import SuiteSettings
from ._suite import Suite, resolve
from ._summary import SuiteSummary

__all__ = ["CLUSTERS", "CLUSTER_FILE", "Part", "parts_of", "run_on_cluster"]

CLUSTERS = ("slurm", "local", "debug")
_POLL_S = 0.5
_QUEUE_S = 5.0  # between two questions to the scheduler, which has others to serve
_LOST_S = 30.0  # that a task may be neither in the queue nor have left a result: shared file systems are slow
_ENDED = ("done", "failed")  # what a part's suite.json says at its end


@dataclass(frozen=True)
class Part:
    """One job in one run of the suite."""

    job: str
    repeat: int

    @property
    def name(self) -> str:
        """Of its directory."""
        return f"{self.job}-run{self.repeat:03d}"


def parts_of(suite: Suite, repeats: int) -> list[Part]:
    """All parts, run after run: a cluster that is short of nodes finishes whole runs first."""
    names = list(dict.fromkeys(entry.name for entry in suite.entries))
    return [Part(name, repeat) for repeat in range(repeats) for name in names]


def run_on_cluster(
    suite: str, asked: Mapping[str, Any], out: Path, cluster: str, parameters: Mapping[str, Any],
    resume: bool = False, tell: Callable[[str], None] = print,
) -> bool:  # fmt: skip
    """Run a suite as tasks of a cluster, wait for them, and say whether every copy of every job ended well.

    Args:
        suite, asked: as for :func:`run_suite`; `copies` and the like are resolved on each node.
        out: on a file system that all nodes share.
        parameters: of submitit's executor, as timeout_min, cpus_per_task or slurm_partition.
        tell: is given a line for each part that ends.

    Raises:
        Unavailable: submitit or the scheduler is not here.
        InvalidArgument: an argument is refused, by us or by the scheduler.
        Interrupted: a signal came; what waits or runs is cancelled, what has ended is kept.
    """
    if cluster not in CLUSTERS:
        raise InvalidArgument(f"--cluster {cluster}: accepted: {', '.join(CLUSTERS)}")
    executor = _executor(cluster, out, parameters)
    settings = SuiteSettings.of(asked)
    resolved = resolve(suite, asked)
    all_parts = parts_of(resolved, settings.repeat)
    with interruptible(), opened(out, CLUSTER_FILE, resume) as record:
        _begin(record, suite, asked, cluster, parameters)
        left = [part for part in all_parts if _state(out / part.name) not in _ENDED]
        tell(f"{resolved.name}: {len(left)} of {len(all_parts)} tasks to submit to {cluster}")
        began_s = time.monotonic()
        tasks = _submitted(executor, [_order(suite, asked, settings, part, out) for part in left])
        try:
            for index, part in enumerate(_finished(cluster, left, tasks)):
                _tell(record, resolved, part, f"[{index + 1}/{len(left)}]", tell)
        except BaseException:
            with deferred():
                _cancel(tasks)
            raise
        SuiteSummary(out / "summary.txt").add(total_line(time.monotonic() - began_s))
        ok = all(_state(out / part.name) == "done" for part in all_parts)
        record.state["status"] = "done" if ok else "failed"
        record.save()
        return ok


def _executor(cluster: str, out: Path, parameters: Mapping[str, Any]) -> Any:
    try:
        import submitit
    except ImportError:
        raise Unavailable("submitit is not installed", remedy="pip install 'dnnsuite[cluster]'") from None
    # Beside `out`, whose directory does not exist yet or is to be found empty.
    folder = out.parent / f".{out.name}-tasks"
    try:
        executor = submitit.AutoExecutor(folder=folder / "%j", cluster=cluster)
        executor.update_parameters(name="dnnsuite", **{"timeout_min": 24 * 60, **parameters})
    except (RuntimeError, AssertionError) as error:
        raise Unavailable(
            f"{cluster}: {error}", remedy="run where sbatch is, or with --cluster local"
        ) from error
    except (NameError, TypeError, ValueError) as error:
        raise InvalidArgument(f"--cluster-option: {error}") from error
    return executor


def _order(
    suite: str, asked: Mapping[str, Any], settings: SuiteSettings, part: Part, out: Path
) -> dict[str, Any]:
    """What a task is told; plain values, since they cross to another machine."""
    own = {**asked, "names": [part.job], "exclude": None, "repeat": 1, "seed": settings.seed + part.repeat}
    return {
        "suite": str(Path(suite).resolve()) if Path(suite).is_file() else suite, "asked": own,
        "directory": str((out / part.name).resolve()), "folder": os.getcwd(), "sys_path": [p for p in sys.path if p],
    }  # fmt: skip


def run_part(order: Mapping[str, Any]) -> bool:
    """What a task does, on its node."""
    os.chdir(order["folder"])
    sys.path += [path for path in order["sys_path"] if path not in sys.path]
    directory = Path(order["directory"])
    return run_suite(
        order["suite"], order["asked"], directory, resume=(directory / SUITE_FILE).is_file(), quiet=True
    ).ok


def _submitted(executor: Any, orders: Sequence[Mapping[str, Any]]) -> list[Any]:
    if not orders:
        return []
    try:
        found: list[Any] = executor.map_array(run_part, orders)
    except Exception as error:  # submitit's own kinds, and those of the scheduler's commands
        raise InvalidArgument(f"the scheduler refused the tasks: {error}") from error
    return found


def _finished(cluster: str, parts: Sequence[Part], tasks: Sequence[Any]) -> Iterable[Part]:
    """The parts in the order in which they end; one that its scheduler lost has ended, too."""
    waiting = dict(zip(parts, tasks, strict=True))
    missed_s: dict[Part, float] = {}
    asked_s = -_QUEUE_S
    while waiting:
        queued = None
        if cluster == "slurm" and time.monotonic() - asked_s >= _QUEUE_S:
            queued, asked_s = _queued(), time.monotonic()
        for part, task in list(waiting.items()):
            ended = _over(task)
            if queued is not None and not ended and str(task.job_id).split("_")[0] not in queued:
                first = missed_s.setdefault(part, time.monotonic())
                ended = time.monotonic() - first > _LOST_S
            if ended:
                del waiting[part]
                yield part
        if waiting:
            time.sleep(_POLL_S)


def _over(task: Any) -> bool:
    """Whether a task is over, in whatever way. Slurm's accounting, which many clusters have not, is not asked."""
    if type(task).__name__ == "SlurmJob":
        return bool(task.paths.result_pickle.exists())
    return bool(task.done())


def _queued() -> set[str] | None:
    """Numbers of the job arrays that Slurm still has; None when it does not answer."""
    try:
        said = subprocess.run(
            ["squeue", "--noheader", "--format=%F"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return set(said.stdout.split()) if said.returncode == 0 else None


def _cancel(tasks: Sequence[Any]) -> None:
    for task in tasks:
        with suppress(Exception):  # it may have ended, and the others must still be cancelled
            task.cancel(check=False)


def _state(directory: Path) -> str | None:
    path = directory / SUITE_FILE
    return read_json(path).get("status") if path.is_file() else None


def _begin(
    record: PlanFolder, suite: str, asked: Mapping[str, Any], cluster: str, parameters: Mapping[str, Any]
) -> None:
    now = {
        "suite": suite,
        "asked": {k: v for k, v in asked.items() if v is not None and k != "repeat"},
    }
    for name, value in now.items():
        if record.state.get(name, value) != value:
            raise InvalidArgument(
                f"--resume: {record.root} was made with {name} {record.state[name]}, now it is {value}; "
                "give the same options, or choose another --out"
            )
    record.state.update({**now, "cluster": cluster, "parameters": dict(parameters), "status": "running"})
    record.save()


def _tell(record: PlanFolder, suite: Suite, part: Part, count: str, tell: Callable[[str], None]) -> None:
    """A line of the original's summary for a part that has ended, and one for who is watching."""
    directory = record.root / part.name
    entry = next(entry for entry in suite.entries if entry.name == part.job)
    runs = [run.record for run in read_runs(directory / "runs")[0]]
    seconds = sum(repeat["seconds"] for repeat in _repeats(directory))
    failed = sum(not run.ok for run in runs) if runs else 1
    line = summary_line(entry.index, suite.size, failed, max(len(runs), 1), seconds, entry.command)
    with deferred():
        SuiteSummary(record.root / "summary.txt").add(line)
    why = (
        ""
        if runs
        else f"  ended without a result; its output is below {record.root.parent}/.{record.root.name}-tasks"
    )
    tell(f"{count} run {part.repeat}  {line}{why}")


def _repeats(directory: Path) -> list[dict[str, Any]]:
    path = directory / SUITE_FILE
    found: list[dict[str, Any]] = read_json(path).get("repeats", []) if path.is_file() else []
    return found
