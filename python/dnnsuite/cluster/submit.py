# SPDX-License-Identifier: MIT
"""Submit the parts of a plan, wait for them, and resume what a scheduler lost.

The scheduler is reached through submitit: a Slurm job array, processes of this machine (`local`), or this process
(`debug`). Every task makes a part of the plan in a directory of its own, as the plan's command would on that node; the
directory of the whole is a folder of such, which every reader of results takes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from .._files import read_json
from .._runs.folder import CLUSTER_FILE, PlanFolder, opened
from .._runs.interrupts import check, deferred, interruptible
from ..errors import Error, InvalidArgument, Unavailable, did_you_mean

CLUSTERS = ("slurm", "local", "debug")
_POLL_S = 0.5
_QUEUE_S = 5.0  # between two questions to the scheduler, which has others to serve
_LOST_S = 30.0  # that a task may be neither in the queue nor have left a result: shared file systems are slow
_ENDED = ("done", "failed")  # the status of a part at its end


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a plan that is one task: the name of its directory, and plain values that tell the task what to do."""

    name: str
    order: Mapping[str, Any]


class ClusterPlan(Protocol):
    """A plan that can be cut into parts.

    Attributes:
        name: name for lines on the screen.
        file: the state of a part in its directory; its `status` is done or failed at the end.
        task: `module:function`, called on the node as `function(order, directory, resume)`.
        asked: options that have to be the same for the plan to be continued.
        parts: parts in the order of submission.
    """

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def asked(self) -> Mapping[str, Any]: ...
    @property
    def parts(self) -> Sequence[Part]: ...
    def ended(self, root: Path, part: Part, state: Mapping[str, Any] | None) -> str:
        """Return a line about a part that has ended; `state` is None where it left none."""
        ...

    def all_ended(self, root: Path, seconds: float) -> None:
        """Conclude the plan when every part has ended."""
        ...


def run_parts(
    plan: ClusterPlan,
    out: Path,
    cluster: str,
    parameters: Mapping[str, Any],
    resume: bool = False,
    tell: Callable[[str], None] = print,
) -> bool:
    """Run the parts of a plan as tasks of a cluster, wait for them; True if every one ended well.

    Args:
        out: directory on a file system that all nodes share.
        parameters: parameters of submitit's executor, as timeout_min, cpus_per_task or slurm_partition.
        tell: function that is called with a line for each part that ends.

    Raises:
        Unavailable: submitit or the scheduler is not here.
        InvalidArgument: an argument is refused, by us or by the scheduler.
        Interrupted: a signal came; what waits or runs is cancelled, what has ended is kept.
    """
    if cluster not in CLUSTERS:
        raise InvalidArgument(f"--cluster {cluster}: accepted: {', '.join(CLUSTERS)}{did_you_mean(cluster, CLUSTERS)}")
    executor = _executor(cluster, out, parameters)
    with interruptible(), opened(out, CLUSTER_FILE, resume) as folder:
        _begin(folder, plan, cluster, parameters)
        left = [part for part in plan.parts if _status(out / part.name, plan.file) not in _ENDED]
        tell(f"{Path(plan.name).stem}: {len(left)} of {len(plan.parts)} tasks to submit to {cluster}")
        began_s = time.monotonic()
        tasks = _submitted(executor, [_order(plan, part, out) for part in left])
        try:
            for index, part in enumerate(_finished(cluster, left, tasks)):
                state = _state(out / part.name, plan.file)
                with deferred():
                    line = plan.ended(out, part, state)
                lost = f"  ended without a result; its output is below {_logs(out)}"
                tell(f"[{index + 1}/{len(left)}] {line}{'' if state else lost}")
        except BaseException:
            with deferred():
                for task in tasks:
                    with suppress(Exception):  # it may have ended, and the others must still be cancelled
                        task.cancel(check=False)
            raise
        plan.all_ended(out, time.monotonic() - began_s)
        ok = all(_status(out / part.name, plan.file) == "done" for part in plan.parts)
        folder.state["status"] = "done" if ok else "failed"
        folder.save()
        return ok


def _logs(out: Path) -> Path:
    """Path beside `out`, whose directory does not exist yet or has to stay empty."""
    return out.parent / f".{out.name}-tasks"


def _executor(cluster: str, out: Path, parameters: Mapping[str, Any]) -> Any:
    try:
        import submitit
    except ImportError:
        raise Unavailable("submitit is not installed", remedy="pip install 'dnnsuite[cluster]'") from None
    try:
        executor = submitit.AutoExecutor(folder=_logs(out) / "%j", cluster=cluster)
        executor.update_parameters(name="dnnsuite", **{"timeout_min": 24 * 60, **parameters})
    except (RuntimeError, AssertionError) as error:
        raise Unavailable(f"{cluster}: {error}", remedy="run where sbatch is, or with --cluster local") from error
    except (NameError, TypeError, ValueError) as error:
        raise InvalidArgument(f"--cluster-option: {error}") from error
    return executor


def _order(plan: ClusterPlan, part: Part, out: Path) -> dict[str, Any]:
    """Return the order of a task: plain values, since they cross to another machine."""
    return {
        "task": plan.task,
        "order": dict(part.order),
        "file": plan.file,
        "directory": str((out / part.name).resolve()),
        "folder": os.getcwd(),
        "sys_path": [path for path in sys.path if path],
    }


def run_part(order: Mapping[str, Any]) -> None:
    """Make a part of a plan, on its node."""
    os.chdir(order["folder"])
    sys.path += [path for path in order["sys_path"] if path not in sys.path]
    directory = Path(order["directory"])
    module, _, function = order["task"].partition(":")
    getattr(import_module(module), function)(order["order"], directory, (directory / order["file"]).is_file())


def _submitted(executor: Any, orders: Sequence[Mapping[str, Any]]) -> list[Any]:
    if not orders:
        return []
    try:
        found: list[Any] = executor.map_array(run_part, orders)
    except Exception as error:  # submitit's own kinds, and those of the scheduler's commands
        raise InvalidArgument(f"the scheduler refused the tasks: {error}") from error
    return found


def _finished(cluster: str, parts: Sequence[Part], tasks: Sequence[Any]) -> Iterable[Part]:
    """Yield the parts in the order in which they end; a part that its scheduler lost has ended, too."""
    waiting = dict(zip(parts, tasks, strict=True))
    missed_s: dict[Part, float] = {}
    asked_s = -_QUEUE_S
    while waiting:
        check()
        queued = None
        if cluster == "slurm" and time.monotonic() - asked_s >= _QUEUE_S:
            queued, asked_s = _queued(), time.monotonic()
        for part, task in list(waiting.items()):
            # Slurm's accounting, which many clusters have not, is not asked.
            ended = task.paths.result_pickle.exists() if type(task).__name__ == "SlurmJob" else task.done()
            if queued is not None and not ended and str(task.job_id).split("_")[0] not in queued:
                first = missed_s.setdefault(part, time.monotonic())
                ended = time.monotonic() - first > _LOST_S
            if ended:
                del waiting[part]
                yield part
        if waiting:
            time.sleep(_POLL_S)


def _queued() -> set[str] | None:
    """Numbers of the job arrays that Slurm still has; None when it does not answer."""
    try:
        said = subprocess.run(["squeue", "--noheader", "--format=%F"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return set(said.stdout.split()) if said.returncode == 0 else None


def _state(directory: Path, file: str) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = read_json(directory / file)
    except Error:  # not there, or damaged: made again by --resume
        return None
    return found


def _status(directory: Path, file: str) -> str | None:
    state = _state(directory, file)
    return None if state is None else state.get("status")


def _begin(folder: PlanFolder, plan: ClusterPlan, cluster: str, parameters: Mapping[str, Any]) -> None:
    now = {"suite": plan.name, "asked": dict(plan.asked)}
    for name, value in now.items():
        if folder.state.get(name, value) != value:
            raise InvalidArgument(
                f"--resume: {folder.root} was made with {name} {folder.state[name]}, now it is {value}; "
                "give the same options, or choose another --out"
            )
    folder.state.update({**now, "cluster": cluster, "parameters": dict(parameters), "status": "running"})
    folder.save()


_FIRST_PORT, _PORTS = 20000, 20000  # from which the port of a step is taken by its number
_LEAST = re.compile(r"\[(\d+)[^\]]*\]")


def adopt_step(environment: MutableMapping[str, str] | None = None) -> bool:
    """Set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT from Slurm's variables.

    Does nothing where they are set, as by torchrun, and outside a step of several tasks.

    Args:
        environment: variables to change; those of this process by default.

    Returns:
        True if they were set.

    Raises:
        InvalidArgument: a variable of Slurm's is missing or no number; the message names it.
    """
    found = os.environ if environment is None else environment
    if "WORLD_SIZE" in found or "SLURM_STEP_ID" not in found:
        return False
    size = _number(found, "SLURM_STEP_NUM_TASKS")
    if size < 2:
        return False
    nodes = found.get("SLURM_STEP_NODELIST") or found.get("SLURM_JOB_NODELIST") or ""
    job, step = _number(found, "SLURM_JOB_ID"), _number(found, "SLURM_STEP_ID")
    values = {
        "RANK": _number(found, "SLURM_PROCID"),
        "WORLD_SIZE": size,
        "LOCAL_RANK": _number(found, "SLURM_LOCALID"),
        "LOCAL_WORLD_SIZE": int(found.get("SLURM_STEP_TASKS_PER_NODE", "1").split("(")[0].split(",")[0]),
        "MASTER_ADDR": found.get("MASTER_ADDR") or first_host(nodes),
        "MASTER_PORT": found.get("MASTER_PORT") or _FIRST_PORT + (31 * job + step) % _PORTS,
    }
    found.update({name: str(value) for name, value in values.items()})
    return True


def _number(environment: MutableMapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except KeyError:
        raise InvalidArgument(f"SLURM_STEP_ID is set, but {name} is not; srun sets them all") from None
    except ValueError:
        raise InvalidArgument(f"{name}={environment[name]!r} is not a number") from None


def first_host(nodes: str) -> str:
    """Return the first host of Slurm's list of nodes: `n01` of `n[01-04,7],m3`.

    Raises:
        InvalidArgument: there is none.
    """
    host = _LEAST.sub(r"\1", nodes).split(",")[0]
    if not host or "[" in host:
        raise InvalidArgument(f"SLURM_STEP_NODELIST={nodes!r} names no node")
    return host
