# SPDX-License-Identifier: MIT
"""Runs of several processes: one training run on this machine (`--nproc`) or as a task of a cluster over one node or
several, and workers of a cluster that share one search."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from .._files import read_json, write_json
from .._runs.folder import CLUSTER_FILE
from .._runs.reading import RUN_FILE, read_run
from .._shown import rate as shown_rate
from ..cluster import Part, run_parts
from ..errors import Error, InvalidArgument
from ._status import FAILED

TASK_FILE = "task.json"
_PATIENCE_S = 30.0  # with processes whose run has lost one
COMPARISON_FILE = "comparison.json"
#: Options of the whole, which its tasks are not given: of a training run, and of a search.
_OF_RUN = ("cluster", "nodes", "gpus_per_node", "cluster_option", "out", "resume", "as_json")
OF_SEARCH = ("cluster", "workers", "cluster_option", "out", "resume", "share", "as_json", "quiet")


@dataclass(frozen=True)
class Nodes:
    """Resources of one run on a cluster.

    Attributes:
        count: number of nodes.
        gpus: GPUs of a node, one for each process; 0 for one process per node, on its CPUs.
        options: options of submitit's executor, as NAME=VALUE.
    """

    cluster: str = "slurm"
    count: int = 1
    gpus: int = 0
    options: Mapping[str, Any] | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of submitit's executor."""
        for name, value, least in (("--nodes", self.count, 1), ("--gpus-per-node", self.gpus, 0)):
            if value < least:
                raise InvalidArgument(f"{name} {value}: must be at least {least}")
        own: dict[str, Any] = {"nodes": self.count, "tasks_per_node": max(1, self.gpus)}
        if self.gpus:
            own["gpus_per_node"] = self.gpus
        # The end of one process is that of all: the others would wait for it.
        return {**own, "slurm_srun_args": ["--kill-on-bad-exit=1"], **(self.options or {})}

    @property
    def processes(self) -> int:
        """Number of processes on all nodes."""
        return int(self.parameters["nodes"]) * int(self.parameters["tasks_per_node"])


class _CommandOnCluster:
    """A plan whose tasks run one command, which writes all that there is to write."""

    file = TASK_FILE

    def all_ended(self, root: Path, seconds: float) -> None:
        """Do nothing."""


class TrainingOnCluster(_CommandOnCluster):
    """A plan of one part: the same command on each process of the run.

    Args:
        name: name of the run and of its folder.
        arguments: arguments of `dnnsuite train`, without those about the cluster.
        checkpoint: checkpoint to begin from.
    """

    task = "dnnsuite.cli.on_cluster:train_as_part"

    def __init__(self, name: str, arguments: Sequence[str], checkpoint: str | None = None) -> None:
        self.name = name
        self.asked = {"config": name}  # the run itself refuses settings that do not go on
        self.parts = [Part(name, {"arguments": list(arguments), "checkpoint": checkpoint})]

    def ended(self, root: Path, part: Part, state: Mapping[str, Any] | None) -> str:
        """Describe the run in a line: its result, or the checkpoint from which it can continue."""
        folder = root / part.name
        if state is not None:
            record = read_run(folder / RUN_FILE)
            rate = next((metric for metric in record.metrics if metric.name == "throughput"), None)
            told = f", {shown_rate(rate.value, rate.unit)}" if rate else ""
            reached = f"{record.details['epochs']} epochs on {record.processes} processes{told}"
            return f"{part.name}: {reached if record.ok else record.verdict.message}"
        kept = folder / "checkpoint.pt"
        where = f"the last checkpoint is {kept}" if kept.is_file() else "there is no checkpoint yet"
        return f"{part.name}: a process ended early; {where}; continue with --resume auto"


class TuningOnCluster(_CommandOnCluster):
    """A plan whose parts are workers: the same command on each, in one directory.

    Args:
        job: name for lines on the screen.
        arguments: arguments of `dnnsuite tune`, without `OF_SEARCH`.
        workers: number of tasks.
    """

    task = "dnnsuite.cli.app:tune_as_part"

    def __init__(self, job: str, arguments: Sequence[str], workers: int) -> None:
        if workers < 1:
            raise InvalidArgument(f"--workers {workers}: must be at least 1")
        self.name = f"tune-{job}"
        self.asked = {"arguments": list(arguments)}
        order = {"arguments": list(arguments), "workers": workers}
        self.parts = [Part(f"worker-{number:03d}", order) for number in range(workers)]

    def ended(self, root: Path, part: Part, state: Mapping[str, Any] | None) -> str:
        """Describe a worker's end in a line."""
        return f"{part.name}: {'left; the others continue its trials' if state is None else 'done'}"


def _teller(as_json: bool) -> Callable[[str], None]:
    """Return what prints a line on the screen; beside JSON on standard error."""
    return lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True)


def submit(
    name: str, arguments: Sequence[str], nodes: Nodes, batch_size: int, out: Path, resume: str, as_json: bool
) -> int:
    """Run a training run on a cluster and wait for it; return the exit status.

    Args:
        arguments: arguments of `dnnsuite train`; see :func:`command_line`.
        batch_size: samples of a batch, over all processes.
        resume: `never`, `auto` or a checkpoint to begin from.
    """
    if batch_size % nodes.processes:
        least = batch_size // nodes.processes * nodes.processes or nodes.processes
        raise InvalidArgument(
            f"batch_size is {batch_size}, which cannot be divided among {nodes.processes} processes: use {least}"
        )
    checkpoint = None if resume in ("never", "auto") else str(Path(resume).resolve())
    go_on = resume == "auto" and (out / CLUSTER_FILE).is_file()
    plan = TrainingOnCluster(name, arguments, checkpoint)
    if go_on:  # a run that has ended goes on where more epochs are asked for, and else says so
        (out / name / TASK_FILE).unlink(missing_ok=True)
    ok = run_parts(plan, out, nodes.cluster, nodes.parameters, go_on, _teller(as_json))
    print(json.dumps({"out": str(out / name), "ok": ok}) if as_json else out / name)
    return 0 if ok else FAILED


def search_on_cluster(
    plan: TuningOnCluster, out: Path, cluster: str, parameters: Mapping[str, Any], resume: bool, as_json: bool
) -> Mapping[str, Any]:
    """Submit the workers and wait for them; return what they found, as `comparison.json` has it.

    Raises:
        Error: no worker came to the end.
    """
    run_parts(plan, out, cluster, parameters, resume, _teller(as_json))
    try:
        found: Mapping[str, Any] = read_json(out / COMPARISON_FILE)
    except Error:
        raise Error(
            f"no worker finished the search in {out}; their output is below {out.parent}/.{out.name}-tasks; "
            "continue with --resume"
        ) from None
    return found


def command_line(context: typer.Context, own: Sequence[str] = _OF_RUN) -> list[str]:
    """Return the arguments of the command under way, without `own`: by default those that are of the cluster."""
    words: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in own or value is None or value is False:
            continue
        many = list(value) if isinstance(value, (list, tuple)) else [value]
        if parameter.param_type_name == "argument":
            words += map(str, many)
        elif value is True:
            words.append(parameter.opts[0])
        else:
            words += [word for each in many for word in (parameter.opts[0], str(each))]
    return words


def in_processes(nproc: int, context: typer.Context, seeds: int | None) -> int:
    """Run the same command in `nproc` processes that train one model, and return its status."""
    if nproc < 1:
        raise InvalidArgument(f"--nproc {nproc}: must be at least 1")
    if nproc > 1 and (seeds or 1) > 1:
        raise InvalidArgument(f"--seeds {seeds} are an array, which trains in one process: leave out --nproc")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "dnnsuite", "train", *command_line(context, ("nproc",))]
    place = {"WORLD_SIZE": str(nproc), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    each = [
        subprocess.Popen(command, env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(nproc)
    ]
    try:
        while None in (ended := [one.poll() for one in each]) and not any(ended):
            time.sleep(0.05)
        for one in each:  # where one has failed, the others end soon, or wait for it for ever
            one.wait(None if not any(ended) else _PATIENCE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for one in each:
            if one.poll() is None:
                one.terminate()
    return next((code for code in [*ended, *(one.wait() for one in each)] if code), 0)


def train_as_part(order: Mapping[str, Any], directory: Path, resume: bool) -> None:
    """Train, as one of the run's processes; the first one writes how it ended.

    Raises:
        RuntimeError: the run did not end by itself; it can be continued.
    """
    import submitit

    place = submitit.JobEnvironment()
    go_on = "auto" if (directory / "training.json").is_file() else order["checkpoint"] or "auto"
    command = [sys.executable, "-m", "dnnsuite", "train", *order["arguments"]]
    command += ["--out", str(directory), "--resume", go_on]
    status = subprocess.call(command, env={**os.environ, **_place(place)})
    if status not in (0, FAILED):
        raise RuntimeError(f"process {place.global_rank} ended with status {status}")
    if place.global_rank == 0:
        write_json(directory / TASK_FILE, {"status": "failed" if status else "done"})


def _place(place: Any) -> dict[str, str]:
    """Variables of processes that submitit itself started on this machine; Slurm's own are read by the run."""
    path = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    if "OMP_NUM_THREADS" not in os.environ:  # the processes of a node share its CPUs
        beside = max(1, place.num_tasks // place.num_nodes)
        path["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // beside))
    if "SLURM_STEP_ID" in os.environ or place.num_tasks < 2:
        return path
    names = {"RANK": place.global_rank, "WORLD_SIZE": place.num_tasks, "LOCAL_RANK": place.local_rank}
    port = 20000 + int("".join(filter(str.isdigit, str(place.job_id))) or 0) % 20000
    return {
        **path,
        **{name: str(value) for name, value in names.items()},
        "LOCAL_WORLD_SIZE": str(place.num_tasks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def tune_as_part(main: Callable[[list[str]], None], order: Mapping[str, Any], directory: Path) -> None:
    """Take part in the search, on a node.

    Args:
        main: the command `dnnsuite`.
        directory: directory of this worker, inside that of the search.

    Raises:
        RuntimeError: the command ended early; the line above has its reason.
    """
    directory.mkdir(parents=True, exist_ok=True)
    arguments = [*order["arguments"], *_threads(order), "--quiet", "--share", "--out", str(directory.parent)]
    try:
        main(["tune", *arguments])
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"dnnsuite tune ended with status {ended.code}") from None
    write_json(directory / TASK_FILE, {"status": "done"})


def _threads(order: Mapping[str, Any]) -> list[str]:
    """Threads of a worker among others on one machine; Slurm gives each CPUs of its own."""
    if "--threads" in order["arguments"] or "SLURM_JOB_ID" in os.environ:
        return []
    return ["--threads", str(max(1, len(os.sched_getaffinity(0)) // order["workers"]))]
